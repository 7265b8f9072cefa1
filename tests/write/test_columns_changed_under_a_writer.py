"""Plain Lance changes the columns while a writer of this process holds rows: they go by field id,
as they do for every other process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.string(), "u": pa.string()})


def _swap(base: Any) -> None:
    for old, new in (("v", "x"), ("u", "v"), ("x", "u")):
        lance.dataset(base.uri).alter_columns({"path": old, "name": new})


def _drop_and_add(base: Any) -> None:
    base.drop_columns(["v"])
    lance.dataset(base.uri).add_columns(pa.field("v", pa.int64()))


def _add(base: Any) -> None:
    base.add_columns(pa.field("n", pa.int64()))


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_swap, lambda i: {"id": i, "v": f"u{i}", "u": f"v{i}"}),
        (_drop_and_add, lambda i: {"id": i, "u": f"u{i}", "v": None}),
        (_add, lambda i: {"id": i, "v": f"v{i}", "u": f"u{i}", "n": None}),
    ],
)
def test_rows_in_memory_follow_their_columns(
    tmp_path: Path,
    change: Callable[[Any], None],
    expected: Callable[[int], dict[str, Any]],
    durable: bool,
) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    with table.writer(durable=durable) as writer:
        for i in (1, 2, 3):
            writer.upsert(pa.table({"id": [i], "v": [f"v{i}"], "u": [f"u{i}"]}))
            if i < 3:
                writer.flush()
            if i == 1:
                table.merge()
        change(lance.dataset(table.uri))
        rows = sorted((expected(i) for i in (1, 2, 3)), key=lambda row: int(row["id"]))
        for handle in (table, mw.open_table(table.uri)):
            found = handle.scan().read_all().sort_by("id")
            assert found.to_pylist() == [{n: row[n] for n in found.column_names} for row in rows]
            assert handle.get([3]).to_pylist() == found.slice(2).to_pylist()
    found = mw.open_table(table.uri).scan().read_all().sort_by("id")
    assert found.to_pylist() == [{n: row[n] for n in found.column_names} for row in rows]
