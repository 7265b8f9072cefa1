"""Memory alignment: what Arrow in Python reads anywhere, Rust reads at multiples of its size.

A batch that was read from an IPC stream, or that somebody made around foreign memory, may start at
any address. Lance and DataFusion, which get it without a copy, panic over decimals that are not at
multiples of 16 bytes.
"""

from __future__ import annotations

import pyarrow as pa


def aligned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """`batch`, with the columns copied that other languages could not read in place."""
    given = batch.columns
    columns = [_aligned(column) for column in given]
    if all(new is old for new, old in zip(columns, given, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _aligned(column: pa.Array) -> pa.Array:
    needed = 16 if _has_decimals(column.type) else 8
    if all(buffer is None or buffer.address % needed == 0 for buffer in column.buffers()):
        return column
    # Two arrays, because one alone would be handed back as it is.
    return pa.concat_arrays([column, column.slice(0, 0)])


def _has_decimals(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind) or kind == pa.month_day_nano_interval():
        return True
    return any(_has_decimals(kind.field(i).type) for i in range(kind.num_fields))
