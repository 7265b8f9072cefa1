"""Columns of a Lance table in memory, fragment by fragment.

The rows of a fragment never change: a later version of the table has some new fragments, and fewer
rows of others. So after a merge only its new fragments are read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.arrow.filter_rows import among
from exec_nodes.arrow.large_columns import fits_one_array
from exec_nodes.base.columns import ROW_ADDRESS, ROW_ADDRESS_FIELD, RowAddresses
from exec_nodes.base.lazy import lazy_property
from exec_nodes.keys.keys import one_array
from exec_nodes.lance.deletion_files import ReadFile
from exec_nodes.lance.fragments import (
    FRAGMENT_BITS,
    fragment_identity,
    live_addresses,
    whole_fragments,
)
from exec_nodes.lance.scan import batch_rows, conform, read_table
from exec_nodes.resident.store import Key, ResidentStore

Batches = Iterator[pa.RecordBatch]
_SAMPLE = 8
_OFFSET = (1 << FRAGMENT_BITS) - 1


@dataclass(frozen=True, eq=False)
class _Column:
    """Values of the rows that a fragment has after some deletions, and where they are, in ascending
    order."""

    values: pa.Array
    addresses: RowAddresses
    deletions: Hashable


class FragmentColumns:
    """The columns kept for one version of the table at `uri`; other versions may share them. Safe
    to use from several threads.

    Attributes:
        ids: name of a stored column -> the id by which Lance knows it.
    """

    def __init__(
        self,
        uri: str,
        dataset: Any,
        store: ResidentStore,
        read: ReadFile | None = None,
    ) -> None:
        """`read` gives the bytes of a file in the table's folder."""
        fields = dataset.lance_schema.fields()
        self.ids: Mapping[str, int] = {field.name(): field.id() for field in fields}
        self._uri = uri
        self._dataset = dataset
        self._store = store
        self._file = read
        self._identities: dict[int, tuple[Hashable, Hashable]] = {}

    @lazy_property
    def fragments(self) -> Mapping[int, Any]:
        """The version's fragments by their number."""
        return {fragment.fragment_id: fragment for fragment in self._dataset.get_fragments()}

    @lazy_property
    def _largest_fragments(self) -> Sequence[Any]:
        return nlargest(
            _SAMPLE, self.fragments.values(), key=lambda fragment: fragment.physical_rows
        )

    @property
    def largest(self) -> int:
        """So many bytes of a column may be kept."""
        return self._store.largest

    def pays(self, work: str, names: Sequence[str], saved: int, cost: int) -> bool:
        """See `ResidentStore.pays`: whether to read some stored columns for some kind of work."""
        columns = tuple(self.ids[name] for name in names)
        return self._store.pays(Key("column", (self._uri,), (work, columns)), saved, cost)

    def has_kept(self, schema: pa.Schema) -> bool:
        """Whether all columns of `schema`, all stored, are kept of the version, as some of its
        largest fragments tell: it may have thousands."""
        return any(None not in self._kept(fragment, schema) for fragment in self._largest_fragments)

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
        columns, among, places = [], None, None
        for kept in self._kept(fragment, schema):
            if kept is None:
                return None
            if kept.addresses is not among:  # columns that were read together share them
                among = kept.addresses
                rows = _places(among, addresses)
                if rows is None:
                    return None  # read from a version without them
                places = pa.array(rows)
            columns.append(kept.values.take(places))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def keep(self, fragments: Iterable[Any], schema: pa.Schema, most: int | None = None) -> None:
        """Read and keep the missing stored columns of `schema` of some fragments, and not many more
        than `most` bytes."""
        unread: dict[tuple[pa.Field, ...], list[Any]] = {}
        for fragment in fragments:
            fields = tuple(field for field in schema if not self._is_kept(fragment, field))
            unread.setdefault(fields, []).append(fragment)
        for fields, some in unread.items():
            if fields:
                room = self.largest * len(fields) if most is None else most
                for _ in self.read(some, pa.schema(fields), room, beyond=False):
                    pass

    def evict(self, names: Iterable[str]) -> None:
        """Keep some stored columns no longer, of any version."""
        ids = {self.ids.get(name) for name in names}

        def is_one(key: Key) -> bool:
            detail = key.detail
            is_own = _number_in(self._uri, key) is not None
            return is_own and isinstance(detail, tuple) and detail[0] in ids

        self._store.evict_where("column", is_one)

    def extend(self, schema: pa.Schema) -> None:
        """Read and keep the new fragments of those columns of `schema` that are kept for another
        version and in use: fragments after the last one kept for any version, as a compaction may
        have left none of those. Others did not fit."""
        kept: dict[Hashable, list[Key]] = {}
        for key in self._store.all_keys():
            if _number_in(self._uri, key) is not None:
                kept.setdefault(key.detail, []).append(key)
        new: dict[tuple[int, ...], list[pa.Field]] = {}
        for field in schema:
            keys = kept.get((self.ids.get(field.name), field.type), ())
            used = [self._store.take_use(key) for key in keys]  # takes each, not just the first
            if any(used):
                last = max(_number_in(self._uri, key) or 0 for key in keys)
                after = tuple(number for number in self.fragments if number > last)
                new.setdefault(after, []).append(field)
        for numbers, fields in new.items():
            self.keep([self.fragments[number] for number in numbers], pa.schema(fields))

    def read(
        self, fragments: Sequence[Any], schema: pa.Schema, room: int, *, beyond: bool = True
    ) -> Batches:
        """The stored columns of `schema` and `_rowaddr` of the rows of `fragments`, from the table;
        fragments are kept as long as they take no more than `room` bytes, and read `beyond`."""
        full = schema.append(ROW_ADDRESS_FIELD)
        fragments_read = whole_fragments(
            self._dataset, schema.names, fragments, batch_rows(schema, fragments)
        )
        for fragment, run in groupby(fragments_read, key=lambda pair: pair[0]):
            batches: list[pa.RecordBatch] = []
            for _, batch in run:
                rows = conform(batch, full)
                yield rows
                room -= rows.nbytes
                if room >= 0:
                    batches.append(rows)
                elif beyond:
                    batches.clear()
                else:
                    return
            if batches:
                table = pa.Table.from_batches(batches)
                addresses = one_array(table[ROW_ADDRESS]).to_numpy()
                self._keep_addresses(fragment, addresses)
                for field in schema:
                    if fits_one_array(table[field.name]):
                        self._keep(fragment, field, one_array(table[field.name]), addresses)

    def addresses(self, fragment: Any) -> RowAddresses:
        """As `live_addresses`, and keeps them."""
        cached: RowAddresses | None = self._store.get(self._addresses_key(fragment))
        if cached is None:
            cached = live_addresses(self._dataset, fragment, self._file)
            self._keep_addresses(fragment, cached)
        return cached

    def has(self, fragment: Any, address: int) -> bool:
        """Whether the row at an address, which is one of a fragment's, was not deleted."""
        if not fragment.num_deletions:
            return True
        return _places(self.addresses(fragment), np.array([address], np.uint64)) is not None

    def fetch(self, fragment: Any, address: int, names: list[str]) -> pa.Table | None:
        """Stored columns of the row at an address, which is one of a fragment's, from Lance; None
        if it was deleted."""
        if not fragment.num_deletions:
            return fragment.take([address & _OFFSET], columns=names)
        # By address, as a fragment counts its live rows only; deleted ones are left out.
        row = self._dataset._take_rows(pa.array([address], pa.uint64()), names)  # noqa: SLF001
        return row if row.num_rows else None

    def _field_of_now(self, fragment: Any, field: pa.Field) -> pa.Array | None:
        """A column of a fragment's rows; None if it is not kept, or without rows of this version,
        as another one, which it was read from, had not all of them."""
        (kept,) = self._kept(fragment, [field])
        if kept is None:
            return None
        if kept.deletions == self._identified(fragment)[1]:
            return kept.values
        addresses = self.addresses(fragment)
        if np.array_equal(addresses, kept.addresses):
            return kept.values
        live = among(kept.addresses, addresses)
        if np.count_nonzero(live) < len(addresses):
            return None
        live_values = kept.values.filter(pa.array(live))
        self._keep(fragment, field, live_values, addresses)
        return live_values

    def _is_kept(self, fragment: Any, field: pa.Field) -> bool:
        """Whether a column is kept for all rows of a fragment; if more than half of the kept rows
        were deleted, they are left out."""
        (kept,) = self._kept(fragment, [field])
        if kept is None:
            return False
        addresses = self.addresses(fragment)
        if len(kept.addresses) > 2 * len(addresses):
            return self._field_of_now(fragment, field) is not None
        return addresses is kept.addresses or bool(among(addresses, kept.addresses).all())

    def _kept(self, fragment: Any, fields: Iterable[pa.Field]) -> list[_Column | None]:
        """The kept values of some columns of a fragment: of its current rows, or else of its rows
        in the version that was read last."""
        keys, deletions = self._keys(fragment, fields)
        kept: list[_Column | None] = []
        for columns in self._store.get_all(keys):
            of_now = [column for column in columns or () if column.deletions == deletions]
            kept.append((of_now or columns or [None])[0])  # the last one first
        return kept

    def _keep(
        self, fragment: Any, field: pa.Field, values: pa.Array, addresses: RowAddresses
    ) -> None:
        (key,), deletions = self._keys(fragment, [field])
        columns, room = [_Column(values, addresses, deletions)], self.largest
        for before in self._store.get(key) or ():
            if before.deletions != deletions and values.nbytes + before.values.nbytes <= room:
                columns.append(before)  # both are read while queries move on
                break
        nbytes = sum(column.values.nbytes for column in columns)
        self._store.put(key, columns, nbytes)

    def _keep_addresses(self, fragment: Any, addresses: RowAddresses) -> None:
        self._store.put(self._addresses_key(fragment), addresses, addresses.nbytes)

    def _addresses_key(self, fragment: Any) -> Key:
        identity, deletions = self._identified(fragment)
        return Key("row addresses", (identity,), deletions)

    def _keys(self, fragment: Any, fields: Iterable[pa.Field]) -> tuple[list[Key], Hashable]:
        """Keys of some columns of a fragment, and what identifies its rows in this version."""
        identity, deletions = self._identified(fragment)
        details = [(self.ids[field.name], field.type) for field in fields]
        return [Key("column", (identity,), detail) for detail in details], deletions

    def _identified(self, fragment: Any) -> tuple[Hashable, Hashable]:
        """The identity of a fragment and its rows in this version; Lance makes it at each call."""
        identity = self._identities.get(fragment.fragment_id)
        if identity is None:
            identity = fragment_identity(self._uri, fragment), fragment.deletion_file()
            self._identities[fragment.fragment_id] = identity
        return identity


def _number_in(uri: str, key: Key) -> int | None:
    """The fragment of the table at `uri` whose column the key names; None for other keys."""
    owner = key.owners[0]
    if key.kind == "column" and isinstance(owner, tuple) and owner[0] == uri:
        number: int = owner[1]
        return number
    return None


def _places(stored: RowAddresses, addresses: RowAddresses) -> npt.NDArray[np.int64] | None:
    """The positions of `addresses` in `stored`, which is sorted; None unless all are in it."""
    if len(stored) and stored[-1] - stored[0] == len(stored) - 1:  # no row was deleted
        # An address below the first one becomes a very high place.
        places = addresses - stored[0]
        return places.view(np.int64) if (places < len(stored)).all() else None
    places = stored.searchsorted(addresses)
    if (places == len(stored)).any() or (stored[places] != addresses).any():
        return None
    return places


def decoded_columns(
    source: Hashable, dataset: Any, schema: pa.Schema, store: ResidentStore
) -> tuple[pa.Table, RowAddresses]:
    """The columns of `schema` of all rows of a small table, in the order of a scan, and the row
    addresses; each column is resident on its own, of `source`."""
    names = [*schema.names, ROW_ADDRESS]
    keys = {name: Key("column", (source,), name) for name in names}
    columns: dict[str, pa.Array] = dict(zip(names, store.get_all(list(keys.values())), strict=True))
    missing = [name for name, column in columns.items() if column is None]
    if missing:
        table = read_table(dataset, pa.schema([f for f in schema if f.name in missing]))
        for name in missing:
            columns[name] = column = one_array(table[name])
            store.put(keys[name], column, column.nbytes)
    addresses = columns.pop(ROW_ADDRESS).to_numpy()
    return pa.Table.from_arrays(list(columns.values()), schema=schema), addresses
