"""Rows in memory that Rust could not read in place: the process would panic, or each flush."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.arrow.ffi_alignment import aligned
from memwal_sql.bulk.rows import RowForm
from memwal_sql.bulk.stage import StageLimits
from tests.each import each
from tests.model.process import Process
from tests.model.writing import flush_rows, session_of

TYPES = [pa.decimal128(10, 2), pa.decimal256(45, 2), pa.int64(), pa.list_(pa.decimal128(10, 2))]
VALUES = [Decimal("1.50"), None, Decimal("-2.25")]


def _shifted(array: pa.Array, shift: int) -> pa.Array:
    """The same values `shift` bytes behind a multiple of 64."""
    if pa.types.is_list(array.type):
        values = _shifted(array.values, shift)
        return pa.ListArray.from_arrays(array.offsets, values)
    buffers: list[pa.Buffer | None] = []
    for buffer in array.buffers():
        if buffer is None:
            buffers.append(None)
            continue
        whole = pa.allocate_buffer(buffer.size + 64)
        memoryview(whole).cast("B")[shift : shift + buffer.size] = memoryview(buffer).cast("B")
        buffers.append(whole.slice(shift, buffer.size))
    return pa.Array.from_buffers(array.type, len(array), buffers)


def _batch(kind: pa.DataType, shift: int) -> pa.RecordBatch:
    values: list[object] = [None if v is None else int(v) for v in VALUES]
    if pa.types.is_decimal(kind):
        values = list(VALUES)
    if pa.types.is_list(kind):
        values = [VALUES, [], VALUES[:1]]
    ids = pa.array([1, 2, 3])
    return pa.record_batch({"id": ids, "v": _shifted(pa.array(values, kind), shift)})


@each("kind", TYPES)
@each("shift", [0, 4, 8])
def test_misplaced_columns_are_copied_and_others_are_not(kind: pa.DataType, shift: int) -> None:
    batch = _batch(kind, shift)
    found = aligned(batch)
    assert found.equals(batch)
    needed = 8 if kind == pa.int64() else 16
    assert all(b is None or b.address % needed == 0 for b in found["v"].buffers())
    assert (found is batch) == (shift % needed == 0)


@pytest.mark.parametrize("kind", TYPES[:2], ids=str)
def test_misplaced_decimals_can_be_queried_and_flushed(kind: pa.DataType, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("v", kind)])
    table = mw.create_table(uri, schema, primary_key="id")
    session = session_of("t", table)
    with table.writer() as writer:
        for shift in (8, 0):
            writer.upsert(_batch(kind, shift))
            found = session.sql("SELECT v FROM t WHERE v < 0").to_arrow_table()
            assert found["v"].to_pylist() == [Decimal("-2.25")]
        writer.flush()
        assert table.get([1, 2, 3])["v"].to_pylist() == VALUES


@each("kind", TYPES[:2])
@each("size", [1, 1 << 40])
def test_misplaced_decimals_can_replace_all_rows(
    kind: pa.DataType, size: int, tmp_path: Path
) -> None:
    """As a task of Spark gets them: in data files that it writes itself, and in the driver's."""
    uri = str(tmp_path / f"{kind.bit_width} {size}")
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("v", kind)])
    table = mw.create_table(uri, schema, primary_key="id")
    stager = table.stager("job", RowForm(), replaces=True)
    stager._limits = StageLimits(generation=size)
    table.replace_staged([stager.stage([_batch(kind, 8)])])
    assert table.get([1, 2, 3])["v"].to_pylist() == VALUES


@pytest.mark.parametrize("kind", TYPES[:2], ids=str)
def test_replayed_decimals_can_be_flushed(kind: pa.DataType, tmp_path: Path) -> None:
    """An IPC stream puts its buffers at multiples of 8 bytes, wherever it starts itself."""
    uri = str(tmp_path / "t")
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("v", kind)])
    mw.create_table(uri, schema, primary_key="id")
    for number in range(6):
        process = Process(uri)
        row = pa.table({"id": [number], "v": pa.array([Decimal(number)], kind)}, schema=schema)
        process.table.writer().upsert(row)
        process.kill()
    flush_rows(
        mw.open_table(uri),
        pa.table({"id": [9], "v": pa.array([Decimal(9)], kind)}, schema=schema),
        flush_attempts=1,
    )
    assert mw.open_table(uri).scan().read_all().num_rows == 7
