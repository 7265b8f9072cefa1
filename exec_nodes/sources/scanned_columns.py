"""Columns of a large source that are scanned again and again, kept in memory as far as they fit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

import pyarrow as pa

from exec_nodes.sources.cache import ByteCache
from exec_nodes.sources.scan_addresses import ScanAddresses
from exec_nodes.sources.source import ROW_ADDRESS_FIELD

Batches = Iterator[pa.RecordBatch]


class ScannedColumns:
    """What scans of whole parts of one source have read, a part being a run of its rows.

    Columns are kept from the second scan on: most of what is read once is not read again. Safe to
    use from several threads.
    """

    def __init__(self, identity: Hashable, cache: ByteCache) -> None:
        self._identity = identity
        self._cache = cache
        self._scanned: set[tuple[int, tuple[str, ...]]] = set()

    def scan(
        self,
        part: int,
        parts: int,
        schema: pa.Schema,
        addresses: ScanAddresses,
        read: Callable[[], Batches],
    ) -> Batches:
        """The columns of `schema` and `_rowaddr` of one of so many parts: from memory, or as `read`
        gives them. `addresses` are those of its rows."""
        columns = [self._cache.get(self._key(part, name)) for name in schema.names]
        if any(column is None for column in columns):
            yield from self._reading(part, parts, schema, read())
            return
        for batch in pa.Table.from_arrays(columns, schema=schema).to_batches():
            rows = pa.array(addresses.next(batch.num_rows))
            yield batch.append_column(ROW_ADDRESS_FIELD, rows)

    def _reading(self, part: int, parts: int, schema: pa.Schema, batches: Batches) -> Batches:
        scan = (part, tuple(schema.names))
        if scan not in self._scanned:
            self._scanned.add(scan)
            yield from batches
            return
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            yield batch
            size += batch.nbytes
            if size * parts > self._cache.largest:
                held.clear()
            else:
                held.append(batch.select(schema.names))
        if held and size * parts <= self._cache.largest:
            table = pa.Table.from_batches(held, schema)
            for name, column in zip(schema.names, table.columns, strict=True):
                self._cache.put(self._key(part, name), column, column.nbytes)

    def _key(self, part: int, name: str) -> Hashable:
        return (self._identity, "scanned", part, name)
