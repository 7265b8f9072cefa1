"""Scanning rows that are in memory: MemTables and small generations kept decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from exec_nodes.sources.source import (
    ROW_ADDRESS,
    ROW_ADDRESS_FIELD,
    TOMBSTONE,
    Filter,
    RowAddresses,
)

BATCH_ROWS = 65_536


def scan_table(
    table: pa.Table,
    addresses: RowAddresses,
    columns: Sequence[str],
    filters: Sequence[Filter],
    limit: int | None,
) -> Iterator[pa.RecordBatch]:
    """Yield `columns` and `_rowaddr` of the rows of `table` that match every filter.

    `addresses[i]` is the row address of row i, and there are as many rows as addresses, as a
    table without columns can't tell. Small chunks are put together into batches of up
    to `BATCH_ROWS`. With a limit, the stream may end after that many rows.
    """
    output = [*columns, ROW_ADDRESS]
    needed = _needed(table, columns, filters)
    # Not append_column: a table of no columns has forgotten how many rows it has.
    rows = pa.Table.from_arrays(
        [*(table[name] for name in needed), pa.array(addresses)],
        schema=pa.schema([*(table.schema.field(name) for name in needed), ROW_ADDRESS_FIELD]),
    )
    left = len(addresses) if limit is None else limit
    for start in range(0, len(addresses), BATCH_ROWS):
        for batch in rows.slice(start, BATCH_ROWS).combine_chunks().to_batches():
            if left <= 0:
                return
            for condition in filters:
                batch = batch.filter(condition.evaluate(batch.select(_inputs(table, condition))))
            if batch.num_rows:
                left -= batch.num_rows
                yield batch.select(output)


def _needed(table: pa.Table, columns: Sequence[str], filters: Sequence[Filter]) -> list[str]:
    inputs = [name for condition in filters for name in _inputs(table, condition)]
    return list(dict.fromkeys([*columns, *inputs]))


def _inputs(table: pa.Table, condition: Filter) -> list[str]:
    if condition.columns is None:
        return [name for name in table.column_names if name != TOMBSTONE]
    return list(condition.columns)
