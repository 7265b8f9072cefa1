"""Columns of a Lance table in memory, fragment by fragment.

The rows of a fragment never change: a later version of the table has some new fragments, and fewer
rows of others. So after a merge only what it wrote is read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from exec_nodes.kernels.keys import one_array
from exec_nodes.once import once_property
from exec_nodes.sources.cache import ByteCache
from exec_nodes.sources.deletion_files import ReadFile
from exec_nodes.sources.lance_scan import batch_rows, conform, scan_dataset
from exec_nodes.sources.live_rows import among
from exec_nodes.sources.source import ROW_ADDRESS, ROW_ADDRESS_FIELD, RowAddresses
from exec_nodes.sources.whole_fragments import fragment_files, live_addresses, whole_fragments

Batches = Iterator[pa.RecordBatch]
_MARK_BYTES = 200


class FragmentColumns:
    """What is kept of one version of the table at `place`, and may be of others too. Safe to use
    from several threads.

    Attributes:
        ids: of the stored columns, by name: what Lance knows them by, whatever their names.
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

    @once_property
    def fragments(self) -> Mapping[int, Any]:
        """The version's fragments by their number."""
        return {one.fragment_id: one for one in self._dataset.get_fragments()}

    @property
    def largest(self) -> int:
        """So many bytes of a column may be kept."""
        return self._cache.largest

    def known(self, schema: pa.Schema) -> bool:
        """Whether each column of `schema`, all stored, is kept of some fragment of some version."""
        return all(self._cache.get(self._mark(field)) is not None for field in schema)

    def whole(self, fragment: Any, schema: pa.Schema) -> pa.Table | None:
        """The stored columns of `schema` and `_rowaddr` of a fragment's rows; None unless all are
        kept."""
        columns = []
        for field in schema:
            column = self._field_of_now(fragment, field)
            if column is None:
                return None
            columns.append(column)
        addresses = pa.array(self.addresses(fragment))
        return pa.Table.from_arrays([*columns, addresses], schema=schema.append(ROW_ADDRESS_FIELD))

    def rows(
        self, fragment: Any, addresses: RowAddresses, schema: pa.Schema
    ) -> pa.RecordBatch | None:
        """The stored columns of `schema` of some of a fragment's rows, in the order asked; None
        unless all are kept."""
        found = []
        for field in schema:
            kept: tuple[pa.Array, RowAddresses] | None = self._cache.get(self._key(fragment, field))
            if kept is None:
                return None
            column, held = kept
            rows = held.searchsorted(addresses)
            known = rows < len(held)
            if not known.all() or (held[rows] != addresses).any():
                return None  # read from a version without them
            found.append(column.take(pa.array(rows)))
        return pa.RecordBatch.from_arrays(found, schema=schema)

    def keep(self, fragments: Iterable[Any], schema: pa.Schema) -> None:
        """Read and keep what is missing of the stored columns of `schema` of some fragments."""
        unread: dict[tuple[pa.Field, ...], list[Any]] = {}
        for fragment in fragments:
            fields = tuple(one for one in schema if self._field_of_now(fragment, one) is None)
            unread.setdefault(fields, []).append(fragment)
        for fields, some in unread.items():
            if fields:
                for _ in self.read(some, pa.schema(fields), self.largest * len(fields)):
                    pass

    def read(self, fragments: Sequence[Any], schema: pa.Schema, room: int) -> Batches:
        """The stored columns of `schema` and `_rowaddr` of the rows of `fragments`, from the table;
        fragments are kept as long as they take no more than `room` bytes."""
        full = schema.append(ROW_ADDRESS_FIELD)
        found = whole_fragments(self._dataset, schema.names, fragments, batch_rows(schema))
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
                addresses = one_array(table[ROW_ADDRESS]).to_numpy()
                self._keep_addresses(fragment, addresses)
                for field in schema:
                    self._keep(fragment, field, one_array(table[field.name]), addresses)

    def read_once(
        self, field: pa.Field, fragments: Iterable[Any]
    ) -> tuple[pa.ChunkedArray, RowAddresses]:
        """A column of the rows of `fragments` in ascending row address, and their addresses; not
        kept."""
        schema = pa.schema([field])
        ascending = sorted(fragments, key=lambda fragment: fragment.fragment_id)
        found = scan_dataset(self._dataset, schema, (), None, ascending, schema)
        table = pa.Table.from_batches(found, schema.append(ROW_ADDRESS_FIELD))
        return table[field.name], table[ROW_ADDRESS].to_numpy()

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

    def _field_of_now(self, fragment: Any, field: pa.Field) -> pa.Array | None:
        """A column of a fragment's rows; None if it is not kept, or without rows of this version,
        as another one, which it was read from, had not all of them."""
        kept: tuple[pa.Array, RowAddresses] | None = self._cache.get(self._key(fragment, field))
        if kept is None:
            return None
        column, held = kept
        addresses = self.addresses(fragment)
        if addresses is held or np.array_equal(addresses, held):
            return column
        live = among(held, addresses)
        if np.count_nonzero(live) < len(addresses):
            return None
        left = column.filter(pa.array(live))
        self._keep(fragment, field, left, addresses)
        return left

    def _keep(
        self, fragment: Any, field: pa.Field, column: pa.Array, addresses: RowAddresses
    ) -> None:
        self._cache.put(self._key(fragment, field), (column, addresses), column.nbytes)
        self._cache.put(self._mark(field), True, _MARK_BYTES)

    def _keep_addresses(self, fragment: Any, found: RowAddresses) -> None:
        key = self._addresses_key(fragment)
        self._cache.put(key, (fragment.deletion_file(), found), found.nbytes)

    def _addresses_key(self, fragment: Any) -> Hashable:
        return (fragment_identity(self._place, fragment), "addresses")

    def _key(self, fragment: Any, field: pa.Field) -> Hashable:
        identity = fragment_identity(self._place, fragment)
        return (identity, "kept", self.ids[field.name], field.type)

    def _mark(self, field: pa.Field) -> Hashable:
        return (self._place, "kept", self.ids[field.name], field.type)


def fragment_identity(place: str, fragment: Any) -> Hashable:
    """Tells the rows of a fragment of the table at `place`, whatever was deleted of them."""
    return (place, fragment.fragment_id, fragment_files(fragment))
