"""Where the nearest rows can't be told, the plan of a sort stays as it was, and errors too."""

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
        ]
    )
    rows = {**ROWS, "bits": [[1, 2]] * 3, "list": ROWS["v"], "whole": [[1, 2]] * 3}
    made = mw.create_table("memory://unchanged", schema, primary_key="id")
    with made.writer() as writer:
        writer.upsert(pa.table(rows, schema))
        yield made


def session(table: mw.Table) -> datafusion.SessionContext:
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    return context


def plan_of(context: datafusion.SessionContext, query: str, **parameters: Any) -> str:
    return context.sql(query, param_values=parameters).execution_plan().display_indent()


def test_it_changes_where_nothing_is_in_between(table: mw.Table) -> None:
    for order in ("array_distance(v, [1, 2])", "l2_distance([1, 2], v)", "cosine_distance(v, $q)"):
        parameters = {"q": [0.5, 1.0]} if "$q" in order else {}
        query = f"SELECT id FROM t ORDER BY {order} LIMIT 2"
        assert "NearestExec: k=2" in plan_of(session(table), query, **parameters)


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
    ],
)
def test_it_stays_where_something_is(table: mw.Table, query: str) -> None:
    context = session(table)
    assert "NearestExec" not in plan_of(context, query)
    context.sql(query).collect()


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


def test_a_limit_above_any_number_of_rows_yields_all(table: mw.Table) -> None:
    query = f"SELECT id FROM t ORDER BY array_distance(v, [2, 2]) LIMIT {2**63 - 1}"
    context = session(table)
    assert "NearestExec" in plan_of(context, query)
    assert context.sql(query).to_pydict()["id"] == [2, 1, 3]
