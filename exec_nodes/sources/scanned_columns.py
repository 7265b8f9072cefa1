"""Columns that are scanned again and again, kept in memory by fragment as far as they fit.

The rows of a fragment never change: a later version of the table has some new fragments, and more
deleted rows in others. So after a merge only what it wrote is read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import pyarrow as pa

from exec_nodes.kernels.keep import Flags
from exec_nodes.sources.cache import ByteCache
from exec_nodes.sources.lance_scan import batch_rows, conform
from exec_nodes.sources.whole_fragments import Stretch, live_flags, stretches

Batches = Iterator[pa.RecordBatch]


class ScannedColumns:
    """What scans of whole fragments of one version of the table at `place` have read.

    Columns are kept from the second scan on: most of what is read once is not read again. Safe to
    use from several threads.

    Attributes:
        ids: of the stored columns, by name.
    """

    def __init__(self, place: str, dataset: Any, cache: ByteCache) -> None:
        self._place = place
        self._dataset = dataset
        self._cache = cache
        self.ids: Mapping[str, int] = {
            field.name(): field.id() for field in dataset.lance_schema.fields()
        }
        self._scanned: set[tuple[tuple[int, ...], tuple[str, ...]]] = set()

    def scan(self, fragments: Sequence[Any], parts: int, schema: pa.Schema) -> Batches:
        """The columns of `schema`, which are stored, and `_rowaddr` of the rows of `fragments`,
        which are one of so many parts of what is scanned."""
        kept = [self._kept(fragment, schema) for fragment in fragments]
        tables = [table for table in kept if table is not None]
        scan = (tuple(fragment.fragment_id for fragment in fragments), tuple(schema.names))
        most = self._cache.largest // parts if tables or scan in self._scanned else 0
        room = most - sum(table.nbytes for table in tables)
        pairs = zip(fragments, kept, strict=True)
        for unread, run in groupby(pairs, key=lambda pair: pair[1] is None):
            if unread:
                yield from self._read([fragment for fragment, _ in run], schema, room)
            else:
                for fragment, table in run:
                    yield from self._in_memory(fragment, table)
        self._scanned.add(scan)

    def live(self, fragment: Any) -> Flags | None:
        """As `live_flags`, and kept."""
        if not fragment.num_deletions:
            return None
        key, deletions = self._live_key(fragment), fragment.deletion_file()
        known: tuple[str, Flags] | None = self._cache.get(key)
        if known is not None and known[0] == deletions:
            return known[1]
        flags = live_flags(self._dataset, fragment)
        if flags is not None:
            self._cache.put(key, (deletions, flags), flags.nbytes)
        return flags

    def _kept(self, fragment: Any, schema: pa.Schema) -> pa.Table | None:
        """The columns of all rows of a fragment, deleted ones too; None unless all are kept."""
        columns = []
        for field in schema:
            columns.append(self._cache.get(self._key(fragment, field)))
            if columns[-1] is None:
                return None
        return pa.Table.from_arrays(columns, schema=schema)

    def _in_memory(self, fragment: Any, table: pa.Table) -> Batches:
        live, offset = self.live(fragment), 0
        for rows in table.to_batches():
            end = offset + rows.num_rows
            flags = None if live is None else live[offset:end]
            yield Stretch(fragment, offset, rows, flags).live_rows()
            offset = end

    def _read(self, fragments: Sequence[Any], schema: pa.Schema, room: int) -> Batches:
        """From the table; fragments are kept as long as their columns take no more than `room`."""
        found = stretches(self._dataset, schema.names, fragments, batch_rows(schema))
        for _, run in groupby(found, key=lambda one: one.fragment.fragment_id):
            held: list[Stretch] = []
            for read in run:
                one = replace(read, rows=conform(read.rows, schema))
                yield one.live_rows()
                room -= one.rows.nbytes
                if room < 0:
                    held.clear()
                else:
                    held.append(one)
            if held:
                self._keep(held, schema)

    def _keep(self, held: Sequence[Stretch], schema: pa.Schema) -> None:
        """Keep the columns of a fragment, all of whose rows these are."""
        fragment = held[0].fragment
        table = pa.Table.from_batches([one.rows for one in held], schema)
        for field, column in zip(schema, table.columns, strict=True):
            self._cache.put(self._key(fragment, field), column, column.nbytes)

    def _key(self, fragment: Any, field: pa.Field) -> Hashable:
        identity = fragment_identity(self._place, fragment)
        return (identity, "scanned", self.ids[field.name], field.type)

    def _live_key(self, fragment: Any) -> Hashable:
        return (fragment_identity(self._place, fragment), "live")


def fragment_identity(place: str, fragment: Any) -> Hashable:
    """Tells the rows of a fragment of the table at `place`, whatever was deleted of them."""
    return (place, fragment.fragment_id, *(file.path for file in fragment.data_files()))
