"""Conditions over a search that DataFusion shows to no table: refused, or meant for the rows found.

Never is a condition that could choose what is ranked applied after the best rows were cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import datafusion
import pyarrow as pa
import pytest
from datafusion import col, functions, lit

import memwal_sql as mw
from tests.each import each, refusals
from tests.plans.golden import physical_plan
from tests.soak import usual
from tests.sql.searching import Searched

Q = [0.3, -0.1, 0.2, 0.5]
SEARCHES = {
    "vector_search": f"vector_search('events', 'v', {Q}, 8)",
    "full_text_search": "full_text_search('events', 'body', 'merge tree', 8)",
    "hybrid_search": f"hybrid_search('events', 'v', {Q}, 'body', 'merge', 8)",
}
NEAREST = SEARCHES["vector_search"]
BEST_TEXTS = SEARCHES["full_text_search"]


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Searched]:
    made = Searched(tmp_path_factory.mktemp("searched"))
    made.ctx.sql(f"CREATE VIEW found AS SELECT * FROM {NEAREST}").collect()
    yield made
    made.writer.close()


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_refuses_them_with_a_reason_and_a_way_out(
    searched: Searched, name: str
) -> None:
    query = f"SELECT id FROM {SEARCHES[name]} WHERE random() < 0.5 AND lang = 'en'"
    for statement in (query, "EXPLAIN ANALYZE " + query):
        with pytest.raises(mw.UnsupportedError) as refused:
            searched.sql(statement)
        message = str(refused.value)
        assert message.startswith(f"random() < 0.5 can't choose the rows that {name} ranks")
        assert "give the values themselves" in message
        assert "put a LIMIT between" in message


@pytest.mark.parametrize("name", SEARCHES)
def test_explain_shows_the_reason(searched: Searched, name: str) -> None:
    query = f"SELECT id FROM {SEARCHES[name]} WHERE random() < 0.5"
    assert physical_plan(searched.ctx, query).startswith("RefusedExec: random() < 0.5 can't choose")


@each("query, words", refusals(Path(__file__).with_name("refused.sql")))
def test_what_is_refused_says_why(searched: Searched, query: str, words: str) -> None:
    """Calls that do not fit, and conditions on what a search yields, wherever they stand."""
    query = query.replace("{nearest}", NEAREST).replace("{best}", BEST_TEXTS)
    with pytest.raises(mw.InvalidCallError, match=f"(?s){words}"):
        searched.sql(query)


def test_the_methods_of_a_dataframe_are_no_way_around(searched: Searched) -> None:
    frame = searched.ctx.sql(f"SELECT * FROM {NEAREST}").filter(functions.random() < lit(0.5))
    with pytest.raises(mw.UnsupportedError), mw.memwal_errors():
        frame.select(col("id")).collect()


def test_an_insert_of_what_is_refused_writes_nothing(searched: Searched, tmp_path: Path) -> None:
    target = mw.create_table(str(tmp_path / "t"), pa.schema([("id", pa.int64())]), primary_key="id")
    mw.register(searched.ctx, "target", target)
    with pytest.raises(mw.UnsupportedError, match="random"):
        searched.sql(f"INSERT INTO target SELECT id FROM {NEAREST} WHERE random() < 2")
    with pytest.raises(mw.UnsupportedError, match="id > "):
        query = f"SELECT id FROM {NEAREST} WHERE id > (SELECT min(id) FROM events)"
        searched.sql(f"INSERT INTO target {query}")
    assert searched.sql("SELECT * FROM target").num_rows == 0
    searched.sql(f"INSERT INTO target SELECT id FROM {NEAREST}")
    assert searched.sql("SELECT * FROM target").num_rows == 8
    mw.deregister(searched.ctx, "target")
    target.close()


@each(
    "found",
    [
        f"SELECT id FROM {NEAREST} LIMIT 8",
        f"SELECT id FROM {NEAREST} LIMIT 1000",
        f"SELECT id FROM {NEAREST} ORDER BY _distance LIMIT 8",
        f"SELECT id FROM {NEAREST} WHERE _distance < 1000 LIMIT 8",
        f"SELECT id FROM {NEAREST} UNION ALL SELECT id FROM {NEAREST} LIMIT 16",
        "SELECT id FROM found LIMIT 8",
    ],
)
@each(
    "where, rest",
    [
        ("random() < 2", {0, 1}),
        ("id % 2 = 1 OR random() < -1", {1}),
        ("id % 2 = (SELECT min(id) % 2 FROM events WHERE id = 301)", {1}),
        ("f.id IN (SELECT id FROM events WHERE id % 2 = 0)", {0}),
        ("f.id NOT IN (SELECT id FROM events WHERE id % 2 = 0)", {1}),
        ("EXISTS (SELECT 1 FROM events e WHERE e.id = f.id AND e.id % 2 = 0)", {0}),
        ("f.id IN (SELECT id FROM events WHERE id % 2 = 0) OR random() < -1", {0}),
    ],
)
def test_above_a_limit_they_choose_among_the_rows_found(
    searched: Searched, found: str, where: str, rest: set[int]
) -> None:
    rows = searched.sql(f"SELECT id FROM ({found}) f WHERE {where}")
    expected = [row for row in searched.nearest(Q, 8) if row % 2 in rest]
    assert sorted(set(rows["id"].to_pylist())) == sorted(expected)


PICKING = [
    "WHERE id IN (SELECT id FROM events)",
    "WHERE id NOT IN (SELECT id FROM events WHERE lang = 'de')",
    "WHERE EXISTS (SELECT 1 FROM events e WHERE e.id = s.id)",
    "WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.id > s.id AND e.lang <> s.lang)",
    "WHERE EXISTS (SELECT 1 FROM labels)",
    "WHERE id > (SELECT min(id) FROM events e WHERE e.lang = s.lang)",
    "WHERE lang = ANY (SELECT lang FROM labels)",
    "WHERE id IN (SELECT id FROM events) OR id < 0",
    "WHERE id IN (SELECT id FROM events) OR random() < 2",
    "WHERE (id IN (SELECT id FROM events)) IS NOT TRUE",
    "LEFT SEMI JOIN labels l ON s.lang = l.lang",
    "LEFT ANTI JOIN labels l ON s.lang > l.lang",
    "JOIN (SELECT DISTINCT lang FROM labels) l ON s.lang = l.lang",
]


@each("hashed", ["true", "false"])
@each("picking", PICKING)
def test_subqueries_and_joins_that_only_pick_rows_act_on_the_rows_found(
    searched: Searched, picking: str, hashed: str
) -> None:
    context = searched.context({"datafusion.optimizer.prefer_hash_join": hashed})
    searched_rows = f"SELECT s.id FROM {NEAREST} s {picking}"
    limited = f"SELECT s.id FROM (SELECT * FROM {NEAREST} LIMIT 8) s {picking}"
    expected = context.sql(limited).to_arrow_table()["id"].to_pylist()
    found = context.sql(searched_rows).to_arrow_table()["id"].to_pylist()
    assert sorted(found) == sorted(expected)
    assert set(found) <= set(searched.nearest(Q, 8))


def test_so_do_those_that_datafusion_makes_of_other_queries(searched: Searched) -> None:
    nearest = set(searched.nearest(Q, 8))
    for query in (
        f"SELECT DISTINCT s.id FROM {NEAREST} s JOIN labels l ON s.lang = l.lang",
        f"SELECT s.id FROM labels l RIGHT SEMI JOIN {NEAREST} s ON s.lang = l.lang",
        "SELECT id FROM found WHERE lang IN (SELECT lang FROM labels)",
        f"SELECT id FROM {NEAREST} WHERE id IN (SELECT id FROM {BEST_TEXTS})",
        f"SELECT id FROM (SELECT * FROM {NEAREST} ORDER BY id) WHERE id IN (SELECT 1)",
    ):
        assert set(searched.sql(query)["id"].to_pylist()) <= nearest


@each("kind", ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
@each(
    "on, hashed",
    usual([*product(["s.lang = l.lang", "s.lang > l.lang", "s.id > 3 AND s.lang = l.lang"],
                    ["true", "false"])], 3),
)  # fmt: skip
def test_joins_are_not_refused(searched: Searched, kind: str, on: str, hashed: str) -> None:
    context = searched.context({"datafusion.optimizer.prefer_hash_join": hashed})
    for tables in (f"{NEAREST} s {kind} labels l", f"labels l {kind} {NEAREST} s"):
        for query in (
            f"SELECT s.id FROM {tables} ON {on}",
            f"SELECT s.id FROM {tables} ON {on} LIMIT 1",
            f"SELECT s.id FROM {tables} ON {on} ORDER BY s._distance LIMIT 1",
            f"SELECT s.id, l.label FROM {tables} ON {on}",
            f"SELECT count(*) FROM {tables} ON {on}",
        ):
            assert "RefusedExec" not in physical_plan(context, query), query


@pytest.mark.parametrize("where", ["id IN ({})", "EXISTS (SELECT 1 FROM ({}) s WHERE s.id = e.id)"])
def test_a_search_may_be_what_another_table_is_picked_by(searched: Searched, where: str) -> None:
    for limit in ("", "LIMIT 8"):
        search = f"SELECT id FROM {NEAREST} {limit}"
        picked = searched.sql(f"SELECT id FROM events e WHERE {where.format(search)}")
        assert sorted(picked["id"].to_pylist()) == sorted(searched.nearest(Q, 8))
        rest = searched.sql(f"SELECT id FROM events e WHERE NOT {where.format(search)}")
        assert rest.num_rows == searched.rows.num_rows - 8


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT s.id FROM {NEAREST} s JOIN labels l ON s.lang = l.lang WHERE s.id IN ({{odd}})",
        f"SELECT id FROM (SELECT id FROM {NEAREST} GROUP BY id) WHERE id IN ({{odd}})",
        f"SELECT id FROM {NEAREST} INTERSECT ({{odd}})",
        f"SELECT id FROM {NEAREST} s WHERE (SELECT count(*) FROM ({{odd}}) WHERE id = s.id) = 1",
    ],
)
def test_above_another_choice_of_rows_subqueries_choose_among_these(
    searched: Searched, query: str
) -> None:
    """Also in the first query and the last, though both are conditions on the search alone: a plan
    shows no difference to conditions on the other table and to outer joins (docs/searching.md)."""
    nearest = searched.nearest(Q, 8)
    odd = nearest[0] % 2
    found = searched.sql(query.format(odd=f"SELECT id FROM events WHERE id % 2 = {odd}"))
    assert sorted(found["id"].to_pylist()) == sorted(row for row in nearest if row % 2 == odd)


def test_a_having_is_about_groups_of_the_rows_found(searched: Searched) -> None:
    query = f"SELECT lang, count(*) AS n FROM {NEAREST} GROUP BY lang HAVING count(*) > random()"
    assert sum(searched.sql(query)["n"].to_pylist()) == 8


def test_a_computed_column_may_be_random(searched: Searched) -> None:
    query = f"SELECT id, CASE WHEN random() < 2 THEN 1 ELSE 0 END AS one FROM {NEAREST}"
    assert searched.sql(query)["one"].to_pylist() == [1] * 8


def test_a_random_condition_on_another_table_of_a_join_is_its_own_business(
    searched: Searched,
) -> None:
    query = (
        f"SELECT s.id FROM {NEAREST} s "
        "JOIN (SELECT * FROM events WHERE random() < 2) e ON s.id = e.id"
    )
    assert sorted(searched.sql(query)["id"].to_pylist()) == sorted(searched.nearest(Q, 8))


@pytest.mark.parametrize("name", SEARCHES)
def test_conditions_on_the_ranking_choose_among_the_rows_found(
    searched: Searched, name: str
) -> None:
    every = searched.sql(f"SELECT * FROM {SEARCHES[name]} WHERE lang = 'en'")
    ranking = every.schema.names[-1]
    values = sorted(every[ranking].to_pylist())
    where = f"WHERE lang = 'en' AND {ranking} >= {values[3]!r} AND {ranking} < {values[-1]!r}"
    kept = [row for row in every.to_pylist() if values[3] <= row[ranking] < values[-1]]
    assert searched.sql(f"SELECT * FROM {SEARCHES[name]} {where}").to_pylist() == kept
    some = searched.sql(f"SELECT id FROM {SEARCHES[name]} {where}")
    assert some.to_pylist() == [{"id": row["id"]} for row in kept]
    count = searched.sql(f"SELECT count(*) AS n FROM {SEARCHES[name]} {where}")
    assert count.to_pylist() == [{"n": len(kept)}]
    none = searched.sql(f"SELECT id FROM {SEARCHES[name]} WHERE {ranking} IS NULL")
    assert none.schema == some.schema
    assert none.num_rows == 0


def test_filters_that_joins_learn_as_they_run_are_no_such_conditions(searched: Searched) -> None:
    """DataFusion puts what the build side of a join holds above a search that is sorted for it."""
    join = f"SELECT s.id FROM {NEAREST} s JOIN labels l ON s.lang = l.lang ORDER BY s._distance"
    assert "DynamicFilter" in physical_plan(searched.ctx, join)
    assert searched.sql(join)["id"].to_pylist() == searched.nearest(Q, 8)
    german = join.replace("labels l", "(SELECT * FROM labels LIMIT 1 OFFSET 1) l")
    expected = [row for row in searched.nearest(Q, 8) if row % 3 == 0]
    assert searched.sql(german)["id"].to_pylist() == expected
    with pytest.raises(mw.UnsupportedError, match=r"^random\(\) < 2 can't choose"):
        searched.sql(join.replace("ORDER", "WHERE random() < 2 ORDER"))


def test_the_bound_of_the_best_few_rows_does_not_reach_the_ranking(searched: Searched) -> None:
    last = searched.sql(f"SELECT id FROM {NEAREST} ORDER BY _distance DESC LIMIT 2")
    assert last["id"].to_pylist() == searched.nearest(Q, 8)[:5:-1]


def test_a_session_gets_the_rule_once(searched: Searched) -> None:
    context = datafusion.SessionContext()
    for name in ("a", "b", "a"):
        mw.register(context, name, searched.table)
    plans = context.sql("EXPLAIN VERBOSE SELECT 1 FROM a").to_pydict()["plan_type"]
    assert plans.count("physical_plan after memwal") == 1
