"""Each call of a writer that changes rows does the same in a transaction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.each import each

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False), pa.field("n", pa.int64()), pa.field("s", pa.string())]
)
START = {"id": range(8), "n": range(8), "s": ["x"] * 8}
ENVELOPES = [
    {"op": "u", "before": {"id": 1}, "after": {"id": 20, "n": 5, "s": "moved"}},
    {"op": "d", "before": {"id": 2, "n": 2}, "after": None},
    None,
    {"op": "c", "before": None, "after": {"id": 21, "n": 6, "s": "made"}},
]
CHANGES = pa.table({"id": [1, 9, 3], "n": [50, 60, 0], "s": ["a", "b", "c"], "op": ["u", "c", "d"]})
# A method, and its arguments behind the table.
CALLS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "whole rows": ("upsert", ({"id": [1, 9], "n": [10, 90], "s": ["a", "b"]},), {}),
    "columns kept": ("upsert", ({"id": [1, 9], "n": [10, 90]},), {}),
    "columns null": ("upsert", ({"id": [1, 9], "n": [10, 90]},), {"missing": "null"}),
    "condition": ("upsert", ({"id": [1, 5], "n": [3, 3], "s": ["a", "b"]},), {"when": "t.n < s.n"}),
    "expression": ("upsert", ({"id": [1, 9, 1], "n": [1, 1, 1]},), {"set": {"n": "t.n + s.n"}}),
    "insert": ("insert", ({"id": [9], "n": [9]},), {}),
    "delete": ("delete", ([1, 99],), {}),
    "delete, condition": ("delete", ([1, 5],), {"when": "t.n < 5"}),
    "delete_where": ("delete_where", ("n % 2 = 0",), {}),
    "update": ("update", ({"n": "n * 10", "s": "s || 'y'"},), {"where": "id > 3"}),
    "update of all": ("update", ({"n": "NULL"},), {}),
    "changes": ("apply", (CHANGES,), {"op": "op"}),
    "changes, condition": ("apply", (CHANGES,), {"op": "op", "when": "t.n < s.n"}),
    "envelopes": ("apply", (ENVELOPES,), {}),
}


@each("name", CALLS)
def test_a_call_stages_what_a_writer_writes(fast_folder: Path, name: str) -> None:
    call, given, options = CALLS[name]
    results = []
    for kind in ("writer", "transaction"):
        folder = fast_folder / str([*CALLS].index(name)) / kind
        with mw.create_table(folder, SCHEMA, "id", "bucket(id, 2)") as table:
            with table.writer() as writer:
                writer.upsert(START)
                if kind == "writer":
                    count = getattr(writer, call)(*given, **options).rows
            if kind == "transaction":
                with mw.transaction(table) as tx:
                    count = getattr(tx, call)(table, *given, **options)
                    inside = tx.scan(table).read_all().sort_by("id").to_pylist()
                assert inside == table.to_arrow().sort_by("id").to_pylist()
            results.append((count, table.to_arrow().sort_by("id").to_pylist()))
    assert results[0] == results[1]
    assert results[0][1] != pa.table(START, SCHEMA).to_pylist()


def test_what_a_call_can_not_compute_leaves_what_was_staged(fast_folder: Path) -> None:
    calls: list[Callable[[mw.Transaction, mw.Table], object]] = [
        lambda tx, t: tx.update(t, {"n": "missing + 1"}),
        lambda tx, t: tx.update(t, {"id": "1"}),
        lambda tx, t: tx.delete_where(t, "missing"),
        lambda tx, t: tx.apply(t, [{"op": "what", "id": 1}]),
    ]
    with mw.create_table(fast_folder / "t", SCHEMA, "id") as table:
        with mw.transaction(table) as tx:
            assert tx.upsert(table, START) == 8
            for call in calls:
                with pytest.raises(mw.InvalidCallError):
                    call(tx, table)
        assert table.count_rows() == 8
