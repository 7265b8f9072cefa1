"""Searches as table functions: prefilters, pruning, projection, joins, names, options, errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import memwal_sql as mw
from tests.model.writing import session_of
from tests.sql.searching import Searched

Q = [0.3, -0.1, 0.2, 0.5]


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Searched]:
    made = Searched(tmp_path_factory.mktemp("searched"))
    yield made
    made.writer.close()


def test_a_vector_search_gives_the_nearest_live_rows(searched: Searched) -> None:
    found = searched.sql(f"SELECT * FROM vector_search('events', 'v', {Q}, 7)")
    assert found["id"].to_pylist() == searched.nearest(Q, 7)
    assert found.schema.names == [*searched.table.schema.names, "_distance"]
    assert found.schema.field("_distance").type == pa.float32()


def test_a_text_search_scores_as_one_index_over_the_live_rows(
    searched: Searched, tmp_path: Path
) -> None:
    scores = searched.scores(tmp_path, "merge tree")
    found = searched.sql("SELECT * FROM full_text_search('events', 'body', 'merge tree', 400)")
    ours = dict(zip(found["id"].to_pylist(), found["_score"].to_pylist(), strict=True))
    assert ours == pytest.approx(scores, abs=3e-6)


def test_a_hybrid_search_sums_reciprocal_ranks(searched: Searched) -> None:
    """Cormack, Clarke and Buettcher 2009, and LanceDB: 1 / (60 + rank), ranks from 1."""
    found = searched.sql(
        f"SELECT * FROM hybrid_search('events', 'v', {Q}, 'body', 'merge', 5, {{candidates: 9}})"
    )
    expected: dict[int, float] = {}
    by_vector = searched.sql(f"SELECT id FROM vector_search('events', 'v', {Q}, 9)")
    by_text = searched.sql("SELECT id FROM full_text_search('events', 'body', 'merge', 9)")
    for ranking in (by_vector, by_text):
        for rank, key in enumerate(ranking["id"].to_pylist(), start=1):
            expected[key] = expected.get(key, 0) + 1 / (60 + rank)
    best = sorted(expected.values(), reverse=True)[:5]
    assert found["_relevance_score"].to_pylist() == pytest.approx(best)
    for row in found.to_pylist():
        assert row["_relevance_score"] == pytest.approx(expected[row["id"]])
        assert (row["_distance"] is None) == (row["id"] not in by_vector["id"].to_pylist())
        assert (row["_score"] is None) == (row["id"] not in by_text["id"].to_pylist())


def test_weights_move_a_hybrid_ranking(searched: Searched) -> None:
    call = f"hybrid_search('events', 'v', {Q}, 'body', 'merge', 5, {{vector_weight: %s}})"
    text_only = searched.sql(f"SELECT id FROM {call % 0}")["id"].to_pylist()
    by_text = searched.sql("SELECT id FROM full_text_search('events', 'body', 'merge', 5)")
    assert text_only == by_text["id"].to_pylist()
    vector_first = searched.sql(f"SELECT id FROM {call % 1000}")["id"].to_pylist()
    assert vector_first == searched.nearest(Q, 5)


@pytest.mark.parametrize(
    ("where", "expression"),
    [
        ("lang = 'de'", pc.field("lang") == "de"),
        ("id = 313", pc.field("id") == 313),
        ("id IN (3, 15, 20, 313)", pc.field("id").isin([3, 15, 20, 313])),
        ("length(body) > 20", pc.utf8_length(pc.field("body")) > 20),
        (
            "lang = 'de' AND length(body) > 20",
            (pc.field("lang") == "de") & (pc.utf8_length(pc.field("body")) > 20),
        ),
        (
            "title LIKE 'm%' OR id % 7 = 0",
            pc.starts_with(pc.field("title"), "m")
            | pc.equal(
                pc.subtract(pc.field("id"), pc.multiply(pc.divide(pc.field("id"), 7), 7)), 0
            ),
        ),
        ("id < 0", pc.field("id") < 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_where_chooses_what_is_ranked(
    searched: Searched, where: str, expression: pc.Expression
) -> None:
    """A prefilter gives k rows that match (rules of correctness, 2), by SQL and by the method."""
    expected = searched.nearest(Q, 6, expression)
    found = searched.sql(f"SELECT id FROM vector_search('events', 'v', {Q}, 6) WHERE {where}")
    assert found["id"].to_pylist() == expected
    method = searched.table.vector_search("v", Q, 6, filter=where, columns=["id"])
    assert method["id"].to_pylist() == expected


@pytest.mark.parametrize("where", ["id = 313", "lang = 'de'", "length(body) > 20", "id IN (1, 2)"])
def test_a_filter_changes_no_score(searched: Searched, where: str) -> None:
    """lance #9058: neither the filter itself nor the regions that it rules out change a score."""
    call = "full_text_search('events', 'body', 'merge tree log', 400)"
    every = searched.sql(f"SELECT id, _score FROM {call}")
    scores = dict(zip(every["id"].to_pylist(), every["_score"].to_pylist(), strict=True))
    found = searched.sql(f"SELECT id, _score FROM {call} WHERE {where}").to_pylist()
    kept = searched.sql(f"SELECT id FROM events WHERE {where}")["id"].to_pylist()
    assert {row["id"]: row["_score"] for row in found} == {
        key: scores[key] for key in kept if key in scores
    }


def test_a_hybrid_search_filters_before_it_ranks(searched: Searched) -> None:
    found = searched.sql(
        f"SELECT id, lang FROM hybrid_search('events', 'v', {Q}, 'body', 'merge', 8) "
        "WHERE lang = 'de' AND length(body) > 4"
    )
    assert found["lang"].to_pylist() == ["de"] * 8


def test_a_condition_on_the_ranking_chooses_among_what_was_found(searched: Searched) -> None:
    nearest = searched.sql(f"SELECT id, _distance FROM vector_search('events', 'v', {Q}, 8)")
    bound = nearest["_distance"].to_pylist()[4]
    found = searched.sql(
        f"SELECT id FROM vector_search('events', 'v', {Q}, 8) WHERE _distance < {bound}"
    )
    assert found["id"].to_pylist() == nearest["id"].to_pylist()[:4]


def test_a_condition_that_can_be_neither_is_refused(searched: Searched) -> None:
    with pytest.raises(mw.UnsupportedError, match="two conditions"):
        searched.sql(
            f"SELECT id FROM vector_search('events', 'v', {Q}, 8) WHERE _distance < id * 0.1"
        )
    with pytest.raises(mw.UnsupportedError, match="random"):
        searched.table.vector_search("v", Q, 8, filter="random() < 0.5")


def test_counts_limits_orders_and_projections(searched: Searched) -> None:
    call = f"vector_search('events', 'v', {Q}, 9)"
    assert searched.sql(f"SELECT count(*) AS n FROM {call}")["n"].to_pylist() == [9]
    assert searched.sql(f"SELECT 1 AS one FROM {call}").num_rows == 9
    few = searched.sql(f"SELECT _distance, id FROM {call} LIMIT 3")
    assert few["id"].to_pylist() == searched.nearest(Q, 3)
    assert few.schema.names == ["_distance", "id"]
    last = searched.sql(f"SELECT id FROM {call} ORDER BY _distance DESC LIMIT 1")
    assert last["id"].to_pylist() == searched.nearest(Q, 9)[-1:]
    ranks = searched.sql(f"SELECT max(_distance) AS far FROM {call} GROUP BY lang")
    assert ranks.num_rows == 2


def test_a_search_joins_with_other_tables_and_searches(searched: Searched) -> None:
    found = searched.sql(
        f"SELECT s.id, l.label FROM vector_search('events', 'v', {Q}, 5) s "
        "JOIN labels l ON s.lang = l.lang ORDER BY s._distance"
    )
    assert found["id"].to_pylist() == searched.nearest(Q, 5)
    assert set(found["label"].to_pylist()) <= {"English", "German"}
    both = searched.sql(
        f"SELECT v.id FROM vector_search('events', 'v', {Q}, 400) v "
        "JOIN full_text_search('events', 'body', 'merge', 400) t ON v.id = t.id"
    )
    merge = searched.rows.filter(pc.match_substring(pc.field("body"), "merge"))
    assert sorted(both["id"].to_pylist()) == sorted(merge["id"].to_pylist())


def test_several_vectors_have_their_own_rows_each(searched: Searched) -> None:
    other = [1.0, 1.0, -1.0, 0.0]
    found = searched.sql(
        f"SELECT id, query_index FROM vector_search('events', 'v', [{Q}, {other}], 4)"
    ).to_pylist()
    by_query = [[row["id"] for row in found if row["query_index"] == n] for n in (0, 1)]
    assert by_query == [searched.nearest(Q, 4), searched.nearest(other, 4)]


@pytest.mark.parametrize(
    "options",
    ["{metric: 'cosine'}", "{'metric': 'cosine', nprobes: 2}", "named_struct('metric', 'cosine')",
     "map {'metric': 'cosine'}", "'{\"metric\": \"cosine\"}'"],
)  # fmt: skip
def test_options_come_as_a_struct_a_map_or_json(searched: Searched, options: str) -> None:
    found = searched.sql(f"SELECT id FROM vector_search('events', 'v', {Q}, 5, {options})")
    method = searched.table.vector_search("v", Q, 5, metric="cosine", columns=["id"])
    assert found["id"].to_pylist() == method["id"].to_pylist() != searched.nearest(Q, 5)


def test_options_and_json_say_how_texts_match(searched: Searched) -> None:
    call = "SELECT id FROM full_text_search('events', 'body', %s, 400, %s)"
    both = searched.sql(call % ("'merge tree'", "{operator: 'AND'}"))["id"].to_pylist()
    merge, tree = (pc.match_substring(pc.field("body"), word) for word in ("merge", "tree"))
    rows = searched.rows.filter(merge & tree)
    assert sorted(both) == sorted(rows["id"].to_pylist())
    typo = searched.sql(call % ("'mergo'", "{fuzziness: 1}"))
    assert sorted(typo["id"].to_pylist()) == sorted(searched.rows.filter(merge)["id"].to_pylist())
    phrase = searched.sql(call % ('\'{"phrase": {"query": "merge tree"}}\'', "NULL"))
    rows = searched.rows.filter(pc.match_substring(pc.field("body"), "merge tree"))
    assert sorted(phrase["id"].to_pylist()) == sorted(rows["id"].to_pylist())
    titles = searched.sql(
        "SELECT id FROM full_text_search('events', ['title', 'lang'], 'merge en', 400)"
    )
    rows = searched.rows.filter((pc.field("title") == "merge") | (pc.field("lang") == "en"))
    assert sorted(titles["id"].to_pylist()) == sorted(rows["id"].to_pylist())


def test_aliases_and_defaults(searched: Searched) -> None:
    vector = searched.sql(f"SELECT * FROM vector_search('events', 'v', {Q})")
    assert vector.num_rows == 10
    assert searched.sql(f"SELECT * FROM lance_vector_search('events', 'v', {Q}, 10)") == vector
    text = searched.sql("SELECT * FROM full_text_search('events', 'body', 'log')")
    assert searched.sql("SELECT * FROM lance_fts('events', 'body', 'log', 10)") == text
    hybrid = searched.sql(f"SELECT * FROM hybrid_search('events', 'v', {Q}, 'body', 'log')")
    alias_call = f"lance_hybrid_search('events', 'v', {Q}, 'body', 'log', 10, NULL)"
    assert searched.sql(f"SELECT * FROM {alias_call}") == hybrid


def test_consistency_is_that_of_the_registration(tmp_path: Path) -> None:
    made = Searched(tmp_path)
    try:
        made.writer.upsert([{"id": 7, "body": "a zebra", "v": [9.0] * 4}], missing="null")
        flushed = session_of("events", made.table, consistency="manifest")
        query = "SELECT id FROM full_text_search('events', 'body', 'zebra')"
        assert flushed.sql(query).to_arrow_table().num_rows == 0
        assert made.sql(query).num_rows == 1
    finally:
        made.writer.close()


def test_a_column_of_the_same_name_as_a_ranking_is_refused(tmp_path: Path) -> None:
    made = Searched(tmp_path)
    try:
        dataset = lance.dataset(made.table.uri)
        dataset.add_columns(pa.schema([pa.field("_score", pa.float32())]))
        table = mw.open_table(made.table.uri)
        with pytest.raises(mw.InvalidCallError, match=r"\['_score'\].*rename"):
            table.full_text_search("body", "log")
        assert table.vector_search("v", Q, 3).num_rows == 3
    finally:
        made.writer.close()


def test_explain_shows_the_plan_in_both_formats(searched: Searched) -> None:
    query = f"SELECT id FROM vector_search('events', 'v', {Q}, 3)"
    indent = searched.sql(f"EXPLAIN {query}")["plan"].to_pylist()[-1]
    assert f"KNNExec: base_table[gen=-1], version={searched.table.version}, column=v, k=3" in indent
    tree = searched.sql(f"EXPLAIN FORMAT TREE {query}")["plan"].to_pylist()[-1]
    assert "GlobalLimitExec" in tree
