"""Batches that Arrow in Python reads and Rust does not. Lance and DataFusion get batches without a
copy.

A batch from an IPC stream, or around foreign memory, may start at any address; Rust panics over
decimals that are not at multiples of 16 bytes. In a struct within a struct that begins in the
middle of its memory, Rust skips the beginning twice, and panics too.
"""

from __future__ import annotations

import pyarrow as pa


def aligned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """`batch`, with the columns copied that other languages could not read in place."""
    values = batch.columns
    columns = [_aligned(column) for column in values]
    if all(new is old for new, old in zip(columns, values, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _aligned(column: pa.Array) -> pa.Array:
    needed = 16 if _has_decimals(column.type) else 8
    in_place = all(b is None or b.address % needed == 0 for b in column.buffers())
    if in_place and not _has_inner_structs(column.type):
        return column
    # Two arrays, because a single one would be returned without a copy.
    return pa.concat_arrays([column, column.slice(0, 0)])


def _has_decimals(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind) or kind == pa.month_day_nano_interval():
        return True
    return any(_has_decimals(kind.field(i).type) for i in range(kind.num_fields))


def _has_inner_structs(kind: pa.DataType) -> bool:
    if not pa.types.is_nested(kind):
        return False
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    within = pa.types.is_struct(kind) and any(pa.types.is_struct(child) for child in inner)
    return within or any(map(_has_inner_structs, inner))
