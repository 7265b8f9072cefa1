"""Columns that are scanned again and again, kept in memory by fragment as far as they fit.

The rows of a fragment never change: a later version of the table has some new fragments, and fewer
rows of others. So after a merge only what it wrote is read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from exec_nodes.sources.cache import ByteCache
from exec_nodes.sources.deletion_files import ReadFile
from exec_nodes.sources.lance_scan import batch_rows, conform
from exec_nodes.sources.live_rows import among
from exec_nodes.sources.source import ROW_ADDRESS, ROW_ADDRESS_FIELD, RowAddresses
from exec_nodes.sources.whole_fragments import (
    fragment_files,
    live_addresses,
    whole_fragments,
)

Batches = Iterator[pa.RecordBatch]


class ScannedColumns:
    """What scans of whole fragments of one version of the table at `place` have read.

    Columns are kept from the second scan on: most of what is read once is not read again. Safe to
    use from several threads.

    Attributes:
        ids: of the stored columns, by name.
    """

    def __init__(
        self, place: str, dataset: Any, cache: ByteCache, read: ReadFile | None = None
    ) -> None:
        """`read` gives the bytes of a file in the table's folder."""
        fields = dataset.lance_schema.fields()
        self.ids: Mapping[str, int] = {field.name(): field.id() for field in fields}
        self._place = place
        self._dataset = dataset
        self._cache = cache
        self._file = read
        self._scanned: set[tuple[tuple[int, ...], tuple[str, ...]]] = set()

    def scan(self, fragments: Sequence[Any], parts: int, schema: pa.Schema) -> Batches:
        """The columns of `schema`, which are stored, and `_rowaddr` of the rows of `fragments`,
        which are one of so many parts of what is scanned."""
        kept = [self._kept(fragment, schema) for fragment in fragments]
        tables = [table for table in kept if table is not None]
        scan = (tuple(fragment.fragment_id for fragment in fragments), tuple(schema.names))
        most = self._cache.largest // parts if tables or scan in self._scanned else 0
        room = most - sum(table.nbytes for table in tables)
        places = zip(kept, fragments, strict=True)
        for unread, run in groupby(places, key=lambda place: place[0] is None):
            if unread:
                yield from self._read([fragment for _, fragment in run], schema, room)
            else:
                yield from (batch for table, _ in run if table for batch in table.to_batches())
        self._scanned.add(scan)

    def addresses(self, fragment: Any) -> RowAddresses:
        """As `live_addresses`, and kept."""
        known: tuple[str | None, RowAddresses] | None = self._cache.get(
            self._addresses_key(fragment)
        )
        if known is not None and known[0] == fragment.deletion_file():
            return known[1]
        found = live_addresses(self._dataset, fragment, self._file)
        self._keep_addresses(fragment, found)
        return found

    def _kept(self, fragment: Any, schema: pa.Schema) -> pa.Table | None:
        """The columns and `_rowaddr` of a fragment's rows; None unless all are kept."""
        columns = []
        for field in schema:
            kept = self._cache.get(self._key(fragment, field))
            column = None if kept is None else self._of_now(fragment, field, *kept)
            if column is None:
                return None
            columns.append(column)
        addresses = pa.chunked_array([pa.array(self.addresses(fragment))])
        return pa.Table.from_arrays([*columns, addresses], schema=schema.append(ROW_ADDRESS_FIELD))

    def _of_now(
        self, fragment: Any, field: pa.Field, column: pa.ChunkedArray, held: RowAddresses
    ) -> pa.ChunkedArray | None:
        """A column that is kept with the addresses of its rows, as this version has it: None if it
        has rows that another one, which the column was read from, had not."""
        addresses = self.addresses(fragment)
        if addresses is held or np.array_equal(addresses, held):
            return column
        live = among(held, addresses)
        if np.count_nonzero(live) < len(addresses):
            return None
        left = column.filter(pa.array(live))
        self._keep(fragment, field, left, addresses)
        return left

    def _read(self, fragments: Sequence[Any], schema: pa.Schema, room: int) -> Batches:
        """From the table; fragments are kept as long as their columns take no more than `room`."""
        names, size = schema.names, batch_rows(schema)
        full = schema.append(ROW_ADDRESS_FIELD)
        found = whole_fragments(self._dataset, names, fragments, size)
        for fragment, run in groupby(found, key=lambda pair: pair[0]):
            held: list[pa.RecordBatch] = []
            for _, batch in run:
                rows = conform(batch, full)
                yield rows
                room -= rows.nbytes
                if room < 0:
                    held.clear()
                else:
                    held.append(rows)
            if held:
                table = pa.Table.from_batches(held)
                addresses = table[ROW_ADDRESS].to_numpy()
                self._keep_addresses(fragment, addresses)
                for field in schema:
                    self._keep(fragment, field, table[field.name], addresses)

    def _keep(
        self, fragment: Any, field: pa.Field, column: pa.ChunkedArray, addresses: RowAddresses
    ) -> None:
        self._cache.put(self._key(fragment, field), (column, addresses), column.nbytes)

    def _keep_addresses(self, fragment: Any, found: RowAddresses) -> None:
        key = self._addresses_key(fragment)
        self._cache.put(key, (fragment.deletion_file(), found), found.nbytes)

    def _addresses_key(self, fragment: Any) -> Hashable:
        return (fragment_identity(self._place, fragment), "addresses")

    def _key(self, fragment: Any, field: pa.Field) -> Hashable:
        identity = fragment_identity(self._place, fragment)
        return (identity, "scanned", self.ids[field.name], field.type)


def fragment_identity(place: str, fragment: Any) -> Hashable:
    """Tells the rows of a fragment of the table at `place`, whatever was deleted of them."""
    return (place, fragment.fragment_id, fragment_files(fragment))
