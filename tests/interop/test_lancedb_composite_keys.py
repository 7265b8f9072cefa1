"""Composite keys in flushed generations: LanceDB finds them by an index of their binary form."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.each import each
from tests.interop.lancedb_client import folder, open_handle

TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.date32(), [date(1969, 12, 31), date(1970, 1, 1), date(2026, 2, 3)]),
    (pa.date64(), [date(1969, 12, 31), date(1970, 1, 1), date(2026, 2, 3)]),
    (pa.int16(), [-1, 0, 300]),
    (pa.uint64(), [0, 1, 2**63]),
    (pa.bool_(), [False, True, None]),
    (pa.string(), ["", "a", "a\0b"]),
    (pa.binary(), [b"", b"\0", b"\0\xff"]),
]


@each("kind, values", TYPES)
def test_lancedb_reads_updates_and_deletes_of_a_composite_key(
    kind: pa.DataType, values: list[Any], tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.int64()), ("k", kind), ("v", pa.string())])
    table = mw.create_table(folder(tmp_path), schema, ["id", "k"])
    rows = [{"id": 1, "k": value, "v": "old"} for value in values if value is not None]
    with table.writer() as writer:
        writer.upsert(rows)
        writer.flush()
        table.merge()
        for v in ("new", "newer"):  # one generation over another
            writer.upsert([{**row, "v": v} for row in rows[1:]])
            writer.flush()
        writer.delete([(1, values[0])])
        writer.flush()
    found = open_handle(tmp_path).table.search().to_arrow().select(["id", "k", "v"]).to_pylist()
    expected = table.to_arrow().to_pylist()
    assert sorted(found, key=str) == sorted(expected, key=str) and len(found) == len(rows) - 1


@each(
    "kind, value",
    [
        (pa.time64("us"), time(1, 2)),
        (pa.timestamp("us"), datetime(2024, 1, 1)),
        (pa.decimal128(10, 2), Decimal("1.50")),
        (pa.decimal256(50, 2), Decimal("1.50")),
    ],
)
def test_lancedb_refuses_composite_keys_that_it_has_no_binary_form_for(
    kind: pa.DataType, value: object, tmp_path: Path
) -> None:
    """The specification has none either: where it gets one, this fails, and the manual is wrong."""
    schema = pa.schema([("id", pa.int64()), ("k", kind), ("v", pa.string())])
    table = mw.create_table(folder(tmp_path), schema, ["id", "k"])
    with table.writer() as writer:
        writer.upsert([{"id": 1, "k": value, "v": "new"}])
        writer.flush()
    assert table.count_rows() == 1
    with pytest.raises(RuntimeError, match="_pk_index"):
        open_handle(tmp_path).table.search().to_arrow()
