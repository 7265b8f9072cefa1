"""Where the nearest rows can't be told, `mw.sql` leaves the plan of a sort, and errors, alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import datafusion
import pyarrow as pa
import pytest
from datafusion import udf

import memwal_sql as mw
from tests.each import each

ROWS = {"id": [1, 2, 3], "n": [3, 1, 2], "v": [[0.0, 1.0], [2.0, 2.0], [-1.0, 0.5]]}


@pytest.fixture(scope="module")
def table() -> Iterator[mw.Table]:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("n", pa.int64()),
            ("v", pa.list_(pa.float32(), 2)),
            ("bits", pa.list_(pa.uint8(), 2)),
            ("list", pa.list_(pa.float32())),
            ("whole", pa.list_(pa.int32(), 2)),
            ("name", pa.string()),
        ]
    )
    rows = {**ROWS, "bits": [[1, 2]] * 3, "list": ROWS["v"], "whole": [[1, 2]] * 3}
    rows["name"] = ["tree log", "tree", "log"]
    made = mw.create_table("memory://unchanged", schema, primary_key="id")
    with made.writer() as writer:
        writer.upsert(pa.table(rows, schema))
        yield made


def session(table: mw.Table) -> mw.SessionContext:
    context = mw.SessionContext()
    mw.register(context, "t", table)
    return context


def plan_of(context: datafusion.SessionContext, query: str, **parameters: Any) -> str:
    return context.sql(query, param_values=parameters).execution_plan().display_indent()


def test_it_changes_where_nothing_is_in_between(table: mw.Table) -> None:
    for order in (
        "array_distance(v, [1, 2])",
        "LIST_DISTANCE([-1, 2.5], v) NULLS FIRST",
        "cosine_distance(v, $q)",
        "1.0 - cosine_distance(v, $q) DESC",
        "dot_product((t.v), make_array(1, 2)) DESC",
        "0 - inner_product(v, $q), n",
        "-inner_product(v, $q)",
    ):
        parameters = {"q": [0.5, 1.0]} if "$q" in order else {}
        query = f"SELECT id FROM t ORDER BY {order} LIMIT 2"
        assert "NearestExec: k=2" in plan_of(session(table), query, **parameters), order


@each(
    "query",
    [
        "SELECT *, array_distance(v, $q) AS d FROM t WHERE n > 1 AND n < 9 ORDER BY d LIMIT $k",
        "SELECT t.*, upper('x') FROM t ORDER BY v <-> $q LIMIT 1 OFFSET $k",
        "SELECT x.id FROM t AS x WHERE x.n IS NOT NULL ORDER BY x.v <-> $q, x.id LIMIT $k",
        "SELECT id FROM t WHERE match(name, 'tree') ORDER BY v <-> $q LIMIT $k",
        "SELECT id FROM t WHERE id IN (SELECT id FROM t ORDER BY v <-> $q LIMIT $k)",
        "WITH near AS (SELECT id FROM t ORDER BY v <-> $q LIMIT $k) "
        "SELECT id FROM near WHERE id > 1",
        "SELECT id FROM t u WHERE n > (SELECT n FROM t ORDER BY v <-> $q OFFSET $k LIMIT 1) "
        "ORDER BY id",
    ],
)
def test_it_changes_in_larger_queries(table: mw.Table, query: str) -> None:
    context, parameters = session(table), {"q": [0.5, 1.0], "k": 2}
    assert "NearestExec" in plan_of(context, query, **parameters)
    plain = datafusion.SessionContext()
    plain.register_record_batches("t", [context.sql("SELECT * FROM t").collect()])
    found = context.sql(query, **parameters).to_pydict()
    assert found["id"]
    expected = query.replace("match(name, 'tree')", "name LIKE '%tree%'")
    assert found == mw.sql(plain, expected, **parameters).to_pydict()


@each(
    "query",
    [
        "SELECT id FROM t ORDER BY array_distance(v, [1, 2])",
        "SELECT id FROM t ORDER BY array_distance(v, [1, 2]) DESC LIMIT 2",
        "SELECT id FROM t ORDER BY inner_product(v, [1, 2]) LIMIT 2",
        "SELECT id FROM t ORDER BY 1 - array_distance(v, [1, 2]) DESC LIMIT 2",
        "SELECT id FROM t ORDER BY 2 * array_distance(v, [1, 2]) LIMIT 2",
        "SELECT id FROM t ORDER BY n, array_distance(v, [1, 2]) LIMIT 2",
        "SELECT id FROM t ORDER BY array_distance(CAST(v AS INT[]), [1, 2]) LIMIT 2",
        "SELECT id FROM t ORDER BY array_distance(v, v) LIMIT 2",
        "SELECT id FROM t ORDER BY array_distance(v, [1, NULL]) LIMIT 2",
        "SELECT id FROM t ORDER BY array_distance(v, [1, CAST('NaN' AS DOUBLE)]) LIMIT 2",
        "SELECT id FROM t ORDER BY cosine_distance(v, [0, 0]) LIMIT 2",
        "SELECT id FROM t ORDER BY inner_product(v, [1e200, 1]) DESC LIMIT 2",
        "SELECT id FROM t ORDER BY array_distance(bits, [1, 2]) LIMIT 2",
        "SELECT id FROM t ORDER BY array_distance(list, [1, 2]) LIMIT 2",
        "SELECT id FROM t ORDER BY array_distance(whole, [1, 2]) LIMIT 2",
        "SELECT id FROM (SELECT * FROM t LIMIT 2) ORDER BY array_distance(v, [1, 2]) LIMIT 1",
        "SELECT id FROM (SELECT * FROM t OFFSET 1) ORDER BY array_distance(v, [1, 2]) LIMIT 1",
        "SELECT id FROM (SELECT * FROM t WHERE abs(n) > 0 LIMIT 2) "
        "ORDER BY array_distance(v, [1, 2]) LIMIT 1",
        "SELECT id FROM (SELECT * FROM t ORDER BY n LIMIT 2) "
        "ORDER BY array_distance(v, [1, 2]) LIMIT 1",
        "SELECT id FROM t WHERE id = 2 ORDER BY array_distance(v, [1, 2]) LIMIT 2",
        "SELECT id FROM t WHERE n + random() < 9 ORDER BY array_distance(v, [1, 2]) LIMIT 2",
        "SELECT n FROM (SELECT n, first_value(v) AS v FROM t GROUP BY n) "
        "ORDER BY array_distance(v, [1, 2]) LIMIT 2",
        "SELECT id FROM t UNION ALL SELECT id FROM t ORDER BY id LIMIT 2",
        "SELECT id FROM t ORDER BY array_distance(v, (SELECT v FROM t WHERE id = 1)) LIMIT 2",
        "SELECT row_number() OVER (ORDER BY n) FROM t ORDER BY array_distance(v, [1, 2]) LIMIT 2",
        "SELECT DISTINCT id, array_distance(v, [1, 2]) AS d FROM t ORDER BY d LIMIT 2",
        "SELECT array_distance(v, [1, 2]) AS d FROM t GROUP BY v ORDER BY d LIMIT 2",
        "SELECT unnest(list), array_distance(v, [1, 2]) AS d FROM t ORDER BY d LIMIT 2",
        "SELECT id FROM t ORDER BY array_distance(public.t.v, [1, 2]) LIMIT 2",
        "SELECT public.t.id FROM t ORDER BY array_distance(v, [1, 2]) LIMIT 2",
        "SELECT id FROM t ORDER BY array_distance(v, [1, 2]) LIMIT 1 + 1",
        "SELECT id FROM t ORDER BY array_distance(v, [1, 2]) LIMIT 0",
        "SELECT id FROM t ORDER BY l2_distance(v, [1, 2]) LIMIT 2",
        "SELECT id FROM t WHERE abs(n) > 1 ORDER BY array_distance(v, [1, 2]) LIMIT 2",
        "SELECT t.id FROM t, t u ORDER BY array_distance(t.v, [1, 2]) LIMIT 2",
        "SELECT a FROM t AS x(a, b, c, d, e, f, v) ORDER BY array_distance(c, [1, 2]) LIMIT 2",
        "SELECT id FROM u ORDER BY array_distance(v, [1, 2]) LIMIT 2",
        "WITH t AS (SELECT * FROM u) SELECT id FROM t ORDER BY array_distance(v, [1, 2]) LIMIT 2",
    ],
)
def test_it_stays_where_something_is(table: mw.Table, query: str) -> None:
    context = session(table)
    datafusion.SessionContext.sql(context, "CREATE VIEW u AS SELECT * FROM t LIMIT 2")
    assert "NearestExec" not in plan_of(context, query)
    context.sql(query).collect()


def test_ctx_sql_sorts_in_full(table: mw.Table) -> None:
    query = "SELECT id FROM t ORDER BY array_distance(v, [2, 2]) LIMIT 2"
    plain = datafusion.SessionContext()
    mw.register(plain, "t", table)
    assert "NearestExec" not in plan_of(plain, query)
    assert plain.sql(query).to_pydict() == session(table).sql(query).to_pydict()


@pytest.mark.parametrize("passes", [0, 3])
def test_a_condition_that_datafusion_does_not_hand_over_is_applied_first(
    table: mw.Table, passes: int
) -> None:
    config = datafusion.SessionConfig().set("datafusion.optimizer.max_passes", str(passes))
    context = mw.SessionContext(config)
    mw.register(context, "t", table)
    query = "SELECT id FROM t WHERE id > 1 ORDER BY array_distance(v, [0, 1]) LIMIT 1"
    assert ("NearestExec" in plan_of(context, query)) == (passes > 0)
    assert context.sql(query).to_pydict()["id"] == [3]


@pytest.mark.parametrize("ordering", ["nulls_max", "nulls_min", "nulls_first", "nulls_last"])
def test_the_session_s_order_of_nulls_counts(ordering: str) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("v", pa.list_(pa.float32(), 1))]
    )
    made = mw.create_table(f"memory://{ordering}", schema, primary_key="id")
    key = "datafusion.sql_parser.default_null_ordering"
    context = mw.SessionContext(datafusion.SessionConfig().set(key, ordering))
    plain = datafusion.SessionContext(datafusion.SessionConfig().set(key, ordering))
    rows = pa.table({"id": range(4), "v": [[2.0], None, [1.0], None]}, schema)
    plain.register_record_batches("t", [rows.to_batches()])
    with made.writer() as writer:
        writer.upsert(rows)
        mw.register(context, "t", made)
        for order in ("array_distance(v, [0])", "inner_product(v, [1]) DESC"):
            query = f"SELECT id FROM t ORDER BY {order}, id LIMIT 2"
            assert "NearestExec" in plan_of(context, query)
            assert context.sql(query).to_pydict() == plain.sql(query).to_pydict()


def test_a_frame_reads_the_table_anew_each_time() -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("v", pa.list_(pa.float32(), 1))]
    )
    made = mw.create_table("memory://anew", schema, primary_key="id")
    context = mw.SessionContext()
    mw.register(context, "t", made)
    with made.writer() as writer:
        writer.upsert(pa.table({"id": [1], "v": [[2.0]]}, schema))
        frame = context.sql("SELECT id FROM t ORDER BY v <-> [0] LIMIT 1")
        assert frame.to_pydict() == {"id": [1]}
        writer.upsert(pa.table({"id": [2], "v": [[1.0]]}, schema))
        assert frame.to_pydict() == {"id": [2]}
        with mw.memwal_errors():
            context.sql("BEGIN")
            context.sql("INSERT INTO t VALUES (3, [0.5])")
            assert frame.to_pydict() == {"id": [3]}
            context.sql("ROLLBACK")
        assert frame.to_pydict() == {"id": [2]}


def test_a_vector_of_another_length_is_datafusion_s_error(table: mw.Table) -> None:
    query = "SELECT id FROM t ORDER BY array_distance(v, [1, 2, 3]) LIMIT 2"
    with pytest.raises(Exception, match="must have the same length"):
        session(table).sql(query).collect()


@pytest.mark.parametrize(
    "name", ["l2_distance", "array_distance", "list_distance", "cosine_distance", "inner_product"]
)
def test_a_function_of_the_user_s_is_neither_taken_for_the_distance_nor_called_to_find_out(
    table: mw.Table, name: str
) -> None:
    """Not even one that differs for far rows only."""
    context, calls = session(table), []
    kinds = [pa.list_(pa.float64()), pa.list_(pa.float64())]

    def capped(ones: pa.Array, others: pa.Array) -> pa.Array:
        calls.append(len(ones))
        pairs = zip(ones.to_pylist(), others.to_pylist(), strict=True)
        return pa.array([min(math.dist(one, other), 2.0) for one, other in pairs])

    context.register_udf(udf(capped, kinds, pa.float64(), "immutable", name))
    query = f"SELECT id FROM t ORDER BY {name}(v, [4.0, 1.0]), id LIMIT 1"
    assert "NearestExec" not in plan_of(context, query)
    assert not calls
    assert context.sql(query).to_pydict()["id"] == [1]
    assert calls


def test_a_compiled_function_of_the_user_s_is_not_taken_for_the_distance(
    table: mw.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no signature to show either, and refuses numbers in words of its own."""
    context = session(table)
    query = "SELECT id FROM t ORDER BY array_distance(v, [4.0, 1.0]) LIMIT 1"
    assert "NearestExec" in plan_of(context, query)
    plans = datafusion.SessionContext.sql

    def compiled(ctx: datafusion.SessionContext, text: str, *given: Any, **named: Any) -> Any:
        if ctx is context and text == "SELECT array_distance(0, 0)":
            raise Exception(
                "Error during planning: Execution error: Function 'array_distance' user-defined "
                "coercion failed with: FFI error: vectors, please No function matches the given "
                "name and argument types 'array_distance(Int64, Int64)'. You might need to add "
                "explicit type casts.\n\tCandidate functions:\n\tarray_distance(UserDefined)"
            )
        return plans(ctx, text, *given, **named)

    monkeypatch.setattr(datafusion.SessionContext, "sql", compiled)
    assert "NearestExec" not in plan_of(context, query)


def test_each_side_of_a_union_and_each_subquery_may_have_its_own(table: mw.Table) -> None:
    near = "(SELECT id, n FROM t ORDER BY array_distance(v, [{}]) LIMIT 1)"
    first, other = near.format("0, 1"), near.format("2, 2")
    union = f"SELECT * FROM {first} UNION ALL SELECT * FROM {other}"
    context = session(table)
    assert plan_of(context, union).count("NearestExec") == 2
    assert sorted(context.sql(union).to_pydict()["id"]) == [1, 2]
    joined = f"SELECT a.id, b.n FROM {first} a JOIN t b ON a.id = b.id WHERE b.n > 0"
    assert "NearestExec" in plan_of(context, joined)
    assert context.sql(joined).to_pylist() == [{"id": 1, "n": 3}]


def test_rows_of_a_sort_are_inserted(table: mw.Table) -> None:
    copy = mw.create_table("memory://copied", table.schema, primary_key="id")
    context = session(table)
    mw.register(context, "copy", copy)
    context.sql(
        "INSERT INTO copy SELECT * FROM t ORDER BY array_distance(v, [2, 2]) LIMIT 2"
    ).collect()
    assert sorted(context.sql("SELECT id FROM copy").to_pydict()["id"]) == [1, 2]


@each("limit", ["9223372036854775807 OFFSET 0", "5000000000000000000", "9223372036854775807"])
def test_a_limit_above_any_number_of_rows_sorts_all(table: mw.Table, limit: str) -> None:
    """Plans add such numbers up, and multiply them."""
    query = f"SELECT id FROM t ORDER BY array_distance(v, [2, 2]) LIMIT {limit}"
    context = session(table)
    assert "NearestExec" not in plan_of(context, query)
    assert context.sql(query).to_pydict()["id"] == [2, 1, 3]
