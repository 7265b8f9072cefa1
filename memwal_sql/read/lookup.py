"""`table.get`: rows by primary key, newest first, without planning.

Specification 2, "Point Lookups": region by the spec, then the newest generation first, each behind
its bloom filter, and the base table last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.arrow.large_columns import taken
from exec_nodes.base.columns import KEY_POSITION, TOMBSTONE
from exec_nodes.base.tasks import map_concurrently
from exec_nodes.keys.keys import KeyBatch, one_array
from exec_nodes.sources.memtable_source import MemTableSource
from exec_nodes.sources.source import Source
from memwal_sql.errors import MemWalError
from memwal_sql.read.region import RegionReader
from memwal_sql.read.snapshots import SnapshotCollector
from memwal_sql.state.base_table import BaseTable
from memwal_sql.storage.objects.concurrent import run_with
from planner.model import Snapshot

Places = npt.NDArray[np.int64]
KeySlice = tuple[KeyBatch, Places]
"""Some of the keys, and their positions among all."""


def get(
    collector: SnapshotCollector, base: BaseTable, keys: KeyBatch, columns: Sequence[str]
) -> pa.Table:
    """The live rows of distinct `keys` over a base version, in order, at strong consistency; reads
    only the regions of the keys. A pinned handle reads its version."""
    if collector.pinned:
        return get_in(collector.of_keys(base, keys), keys, columns)
    output = _output(base.info.schema, columns)
    if len(keys) == 1:
        row = _BaseRow(keys, base.source, output.names)
        sources: list[tuple[Source, ...]] = []

        def read(meanwhile: Callable[[list[Source]], None] | None) -> None:
            regions = _regions_of(collector, base, keys.values[0])
            sources.extend(collector.regions.sources(base, regions, meanwhile))

        if collector.takes_a_while:
            run_with(True, partial(read, partial(_load_filters, keys)), partial(row.read, ()))
        else:
            read(row.read)
        if collector.remote:
            _load_filters(keys, chain(*sources))
        return find_one(keys, chain(*sources, (row,)), output)
    parts: list[KeySlice] = []

    def route() -> tuple[list[RegionReader], bool]:
        routes = list(_routes(collector, base, keys))
        parts[:] = [part for region, part in routes if region is not None]
        regions = [region for region, _ in routes if region is not None]
        return regions, len(regions) == len(routes)

    sources = collector.regions.routed_sources(base, route, partial(_load_filters, keys))
    if collector.remote:
        _load_filters(keys, chain(*sources))
    return _collect(keys, zip(sources, parts, strict=True), base.source, output)


def _load_filters(keys: KeyBatch, sources: Iterable[Source]) -> None:
    """Load bloom filters side by side that are asked about the keys one after the other: none if
    MemTables have all of the keys."""
    unread, undecided = list[Source](), np.ones(len(keys), np.bool_)
    for source in sources:
        if isinstance(source, MemTableSource):
            undecided &= ~source.might_contain(keys)
        elif not source.filter_at_hand:
            unread.append(source)
    if undecided.any():
        with suppress(MemWalError):  # met again by who needs the filter
            map_concurrently(lambda source: source.might_contain(keys), unread)


def _regions_of(collector: SnapshotCollector, base: BaseTable, key: Hashable) -> list[RegionReader]:
    """The regions that may have a key."""
    info = base.info
    readers = []
    for spec in info.region_specs:
        values = spec.key_function(info.schema, info.primary_key)(key)
        values_key = spec.spec_id, values
        (region,) = collector.registry.regions_of(base, (values_key,))
        if region is not None:
            readers.append(region)
    return readers + collector.registry.without_values(base)


def _routes(
    collector: SnapshotCollector, base: BaseTable, keys: KeyBatch
) -> Iterator[tuple[RegionReader | None, KeySlice]]:
    """Each region that may have some of the keys, None where it does not exist, with those keys.

    A region without values may have any key (protocol rule 1).
    """
    for spec in base.info.region_specs:
        distinct, index = spec.assign(keys.table)
        values_keys = {
            (spec.spec_id, tuple(row.values())): None for row in spec.values_of(distinct)
        }
        regions = collector.registry.regions_of(base, values_keys)
        by_region = np.argsort(index, kind="stable")
        table = taken(keys.table, by_region)
        ends = np.cumsum(np.bincount(index, minlength=len(regions))).tolist()
        for region, start, end in zip(regions, [0, *ends], ends, strict=False):
            yield region, (KeyBatch(table.slice(start, end - start)), by_region[start:end])
    for region in collector.registry.without_values(base):
        yield region, (keys, np.arange(len(keys)))


class _BaseRow:
    """The row of the base table with the only key, which can be read in advance."""

    def __init__(self, key: KeyBatch, source: Source, columns: Sequence[str]) -> None:
        self._key = key
        self._source = source
        self._columns = columns
        self._read: list[tuple[pa.Table, bool] | None] = []

    def read(self, newer: Sequence[Source]) -> None:
        """Read it unless one of these sources, which may not be all, can have a newer row."""
        _load_filters(self._key, newer)
        if not any(source.might_contain(self._key)[0] for source in newer):
            self._read.append(self._source.last(self._key, self._columns))

    def last(self, key: KeyBatch, columns: Sequence[str]) -> tuple[pa.Table, bool] | None:
        return self._read[0] if self._read else self._source.last(key, columns)


def get_in(snapshot: Snapshot, keys: KeyBatch, columns: Sequence[str]) -> pa.Table:
    """The live rows of distinct `keys` in a snapshot; reads every region in it."""
    output = _output(snapshot.info.schema, columns)
    if len(keys) == 1:
        newer = (source for region in snapshot.regions for source in region.sources)
        base = () if snapshot.base is None else (snapshot.base,)
        return find_one(keys, chain(newer, base), output)
    everywhere = keys, np.arange(len(keys))
    parts = ((region.sources, everywhere) for region in snapshot.regions)
    return _collect(keys, parts, snapshot.base, output)


def _collect(
    keys: KeyBatch,
    parts: Iterable[tuple[Sequence[Source], KeySlice]],
    base: Source | None,
    output: pa.Schema,
) -> pa.Table:
    """Look up each part of the keys in its sources, and the rest in the base."""
    if not output.names:  # a table without columns would lose its number of rows
        return _collect(keys, parts, base, keys.table.schema).select([])
    rows_found = FoundRows(output)
    missing = np.ones(len(keys), dtype=np.bool_)
    for sources, (some, places) in parts:
        unknown = missing[places]
        some, places = some.filter(unknown), places[unknown]
        missing[places] = False
        missing[search(some, places, sources, rows_found)] = True
    if base is not None:
        search(keys.filter(missing), np.flatnonzero(missing), (base,), rows_found)
    return rows_found.in_order()


def _output(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    if list(columns) == schema.names:
        return schema
    return pa.schema([schema.field(name) for name in columns])


class KeySource(Protocol):
    """What `search` asks of a source; see `Source`."""

    def might_contain(self, keys: KeyBatch) -> npt.NDArray[np.bool_]: ...

    def take(self, keys: KeyBatch, columns: Sequence[str]) -> pa.Table: ...


class FoundRows:
    """Rows gathered from several sources, and the positions of their keys among those given."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._tables: list[pa.Table] = []
        self._places: list[Places] = []

    @property
    def columns(self) -> list[str]:
        """The columns to take."""
        return list(self._schema.names)

    def add(self, rows: pa.Table, places: Places) -> None:
        """Add the result of `Source.take` for the keys at `places`; drops tombstones."""
        key_places = places[rows[KEY_POSITION].to_numpy()]
        deleted = rows[TOMBSTONE].to_numpy()
        rows = rows.select(self._schema.names)
        if deleted.any():
            live = ~deleted
            rows, key_places = rows.filter(pa.array(live)), key_places[live]
        self._tables.append(rows)
        self._places.append(key_places)

    def in_order(self) -> pa.Table:
        """All rows in the order of the given keys."""
        rows, places = self.with_places()
        return taken(rows, np.argsort(places, kind="stable")) if rows.num_rows > 1 else rows

    def with_places(self) -> tuple[pa.Table, Places]:
        """All rows, and the place of each one's key."""
        if not self._tables:
            return self._schema.empty_table(), np.empty(0, np.int64)
        rows = pa.concat_tables([_as(table, self._schema) for table in self._tables])
        return rows, np.concatenate(self._places)


def search(
    keys: KeyBatch, places: Places, sources: Sequence[KeySource], rows_found: FoundRows
) -> Places:
    """Look up `keys` in `sources`, newest first; returns the positions of the keys not found.

    A key is looked up in an older source only if no newer one has it, as a row or as a tombstone.
    `places` are the positions of `keys` among those given.
    """
    for source in sources:
        if not len(keys):
            break
        maybe = source.might_contain(keys)
        if not maybe.any():
            continue
        rows = source.take(keys.filter(maybe), rows_found.columns)
        if not rows.num_rows:
            continue
        rows_found.add(rows, places[maybe])
        absent = np.ones(len(keys), dtype=np.bool_)
        absent[np.flatnonzero(maybe)[rows[KEY_POSITION].to_numpy()]] = False
        keys, places = keys.filter(absent), places[absent]
    return places


def find_one(key: KeyBatch, sources: Iterable[Source | _BaseRow], schema: pa.Schema) -> pa.Table:
    """The live row of the only key, or no row; `sources` are read newest first."""
    for source in sources:
        last_row = source.last(key, schema.names)
        if last_row is not None:
            row, deleted = last_row
            if deleted:
                break
            return _as(row, schema)
    return schema.empty_table()


def distinct(keys: KeyBatch) -> KeyBatch:
    """`keys` without repetitions, in the order of their first occurrence."""
    encoded = one_array(keys.column).dictionary_encode()
    if len(encoded.dictionary) == len(keys):
        return keys
    _, first = np.unique(encoded.indices.to_numpy(), return_index=True)
    return KeyBatch(keys.table.take(pa.array(np.sort(first))))


def _as(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows of these columns in their current types."""
    if rows.schema.equals(schema):
        return rows
    # Arrow's cast to the same type refuses a NULL struct with a field that is not nullable.
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)
