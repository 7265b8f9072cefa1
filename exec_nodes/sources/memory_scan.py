"""Scanning rows that are in memory: MemTables and small generations kept decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.base.columns import ROW_ADDRESS, ROW_ADDRESS_FIELD, Filter, RowAddresses
from exec_nodes.lance.scan import BATCH_BYTES, MAX_BATCH_ROWS


def scan_table(
    table: pa.Table,
    addresses: RowAddresses,
    columns: Sequence[str],
    filters: Sequence[Filter],
    limit: int | None,
) -> Iterator[pa.RecordBatch]:
    """Yield `columns` and `_rowaddr` of the rows of `table` that match every filter.

    `addresses[i]` is the row address of row i, and there are as many rows as addresses, as a
    table without columns can't tell. Small chunks are put together. With a limit, the stream may
    end after that many rows.
    """
    output = [*columns, ROW_ADDRESS]
    inputs = [name for condition in filters for name in condition.columns]
    needed = list(dict.fromkeys([*columns, *inputs]))
    # append_column does not do: a table without columns has lost its number of rows.
    rows = pa.Table.from_arrays(
        [*[table[name] for name in needed], pa.array(addresses)],
        schema=pa.schema([*[table.schema.field(name) for name in needed], ROW_ADDRESS_FIELD]),
    )
    remaining = len(addresses) if limit is None else limit
    size = min(MAX_BATCH_ROWS, 1 + BATCH_BYTES * len(addresses) // max(1, rows.nbytes))
    for start in range(0, len(addresses), size):
        for batch in rows.slice(start, size).combine_chunks().to_batches():
            if remaining <= 0:
                return
            batch = meeting(filters, batch, output)
            if batch.num_rows:
                remaining -= batch.num_rows
                yield batch


def meeting(
    filters: Sequence[Filter], batch: pa.RecordBatch, output: Sequence[str]
) -> pa.RecordBatch:
    """The `output` columns of the rows that meet every filter."""
    rows = None
    for condition in filters:
        met = condition.met_in(batch)
        rows = met if rows is None else pc.and_(rows, met)
    batch = batch.select(output)
    return batch if rows is None or rows.true_count == len(rows) else batch.filter(rows)
