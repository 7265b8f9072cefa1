"""Calls that programs make without looking: the answer is no rows, or every row, never a crash."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.each import each

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False), ("body", pa.string()), ("v", pa.list_(pa.float32(), 2))]
)


@pytest.fixture(params=["memory", "flushed", "merged"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> mw.Table:
    table = mw.create_table(tmp_path / "t", SCHEMA, primary_key="id")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(range(20), pa.float32()), 2)
    rows = {"id": range(10), "body": [f"a common log {i}" for i in range(10)], "v": vectors}
    writer = table.writer()
    writer.upsert(pa.table(rows, schema=SCHEMA))
    if request.param != "memory":
        writer.flush()
    if request.param == "merged":
        table.merge()
    request.addfinalizer(writer.close)
    return table


@each("text, found", [("log", 0), ("log zzz", 0), ("the", 0), ("", 0)])
@each("operator", ["OR", "AND"])
def test_more_words_are_required_than_there_are(
    table: mw.Table, text: str, found: int, operator: str
) -> None:
    rows = table.full_text_search(
        "body", text, 5, minimum_should_match=2, operator=operator, columns=["id"]
    )
    assert rows.num_rows == found
    both = table.full_text_search("body", "common log", 5, minimum_should_match=2)
    assert both.num_rows == 5


@each("condition", ["1 = 0", "false", "NULL", "id = NULL", "id < 5 AND 1 = 0"])
def test_a_condition_that_no_row_can_meet_gives_no_rows(table: mw.Table, condition: str) -> None:
    found = [
        table.vector_search("v", [1, 2], 3, condition),
        table.full_text_search("body", "log", 3, condition),
        table.hybrid_search("v", [1, 2], "body", "log", 3, condition),
    ]
    assert [rows.num_rows for rows in found] == [0, 0, 0]
    assert found[0].column_names == [*SCHEMA.names, "_distance"]
    with pytest.raises(mw.InvalidCallError, match="is nan"):
        table.vector_search("v", [1, float("nan")], 3, condition)


@pytest.mark.parametrize("k", [2**31, 2**62, 2**63 - 1, 2**70])
def test_more_rows_may_be_asked_for_than_any_table_has(table: mw.Table, k: int) -> None:
    assert table.vector_search("v", [1, 2], k).num_rows == 10
    assert table.full_text_search("body", "log", k).num_rows == 10
    assert table.hybrid_search("v", [1, 2], "body", "log", k).num_rows == 10


@each(
    "query, place",
    [
        ([1, None], "element 1 of the query is null"),
        (pa.array([None, 2.0]), "element 0 of the query is null"),
        ([[1, 2], [3, None]], "element 1 of query 1 is null"),
    ],
)
def test_a_null_in_a_query_vector_is_named_with_its_place(
    table: mw.Table, query: object, place: str
) -> None:
    with pytest.raises(mw.InvalidCallError, match=place):
        table.vector_search("v", query, 3)


@each(
    "query",
    [
        "log \udc80",
        {"phrase": {"query": "a \ud800 log"}},
        '{"match": {"query": "log \\udc80"}}',
        {"boolean": {"must_not": [{"match": {"query": "\udfff", "fuzziness": 1}}]}},
    ],
)
def test_half_a_surrogate_pair_is_refused(table: mw.Table, query: object) -> None:
    """No text of a table can hold it, and it has no bytes that could be looked up."""
    with pytest.raises(mw.InvalidCallError, match="half a surrogate pair"):
        table.full_text_search("body", query, 3)
    assert table.full_text_search("body", "log \U0001f642", 3).num_rows == 3
