"""Stale sets: which rows of a source are no rows of the table.

Protocol rule 16: they belong to a pair (source, newer sources) and never change, so they are
computed once, from unfiltered keys, and cached. A row is stale if a newer source of its region
holds its key, as a row or as a tombstone, if a later row of its own source does, or if it is a
tombstone itself (Specification 2, "LSM Tree Merging Read": highest `_gen`, then `_rowaddr`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.kernels.key_codes import KeyCodes, concat, repeated_later_codes
from exec_nodes.kernels.keys import KeyBatch, KeyColumn, key_column, one_array
from exec_nodes.kernels.literals import key_condition
from exec_nodes.sources.at_once import at_once
from exec_nodes.sources.cache import ByteCache
from exec_nodes.sources.source import ROW_ADDRESS, Filter, RowAddresses, Source, SourceKeys

Cover = tuple[tuple[Hashable, int], ...]

# Up to one new key for so many base rows, the base's btree is asked instead of reading its keys.
_ROWS_PER_INDEXED_KEY = 100
# Keys of the base that are matched at once: where finding them prepares a hash table each time,
# and where it does not, so that intermediate arrays stay in the processor's caches.
_MATCH_ROWS = 1 << 20
_CACHED_ROWS = 1 << 16
_EQUAL = -1
# What a cached set costs beside its addresses.
_ENTRY_BYTES = 500


def cover_of(sources: Sequence[Source]) -> Cover:
    """What a stale set has been computed against; `rows` names the prefix of a MemTable."""
    return tuple((source.identity, source.rows) for source in sources)


@dataclass(frozen=True)
class _RegionSets:
    cover: Cover
    sets: tuple[RowAddresses, ...]

    @property
    def nbytes(self) -> int:
        return sum(int(s.nbytes) + _ENTRY_BYTES for s in self.sets)


class StaleSets:
    """Computes and caches stale sets. Every set is sorted, unique and uint64."""

    def __init__(self, cache: ByteCache | None = None) -> None:
        self._cache = ByteCache() if cache is None else cache

    def cached_region(self, sources: Sequence[Source]) -> tuple[RowAddresses, ...] | None:
        """`of_region` if it is known already."""
        if not sources:
            return ()
        found = self._cache.get(_region_key(sources))
        return found.sets if found is not None and found.cover == cover_of(sources) else None

    def of_region(self, sources: Sequence[Source]) -> tuple[RowAddresses, ...]:
        """One set a source, given a region's sources newest first."""
        known = self.cached_region(sources)
        if known is not None:
            return known
        key = _region_key(sources)
        with self._cache.locked(key):
            cover, old = cover_of(sources), self._cache.get(key)
            extra = None if old is None else _newer_than(old.cover, cover)
            if old is None or extra is None:
                sets = _from_scratch(sources)
            elif extra == _EQUAL:
                return tuple(old.sets)
            else:
                sets = _extended(sources, old, extra)
            entry = _RegionSets(cover, tuple(sets))
            self._cache.put(key, entry, entry.nbytes)
            return entry.sets

    def cached_base(self, base: Source, newer: Sequence[Source]) -> RowAddresses | None:
        """`of_base` if it is known already."""
        found: RowAddresses | None = self._cache.get(_base_key(base, newer))
        return found

    def of_base(self, base: Source, newer: Sequence[Source]) -> RowAddresses:
        """The base table's stale rows, given all sources of all regions that are read."""
        return self._cache.compute(
            _base_key(base, newer),
            lambda: self._base_union(base, newer),
            lambda found: int(found.nbytes) + _ENTRY_BYTES,
        )

    def _base_union(self, base: Source, newer: Sequence[Source]) -> RowAddresses:
        pairs: list[RowAddresses] = []
        missing: list[tuple[int, Source, int]] = []
        for index, source in enumerate(newer):
            rows, addresses = self._cache.get(_pair_key(base, source)) or (0, _nothing())
            if rows > source.rows:  # an older prefix of a MemTable than the one that is cached
                rows, addresses = 0, _nothing()
            pairs.append(addresses)
            if rows < source.rows:
                missing.append((index, source, rows))
        at = [index for index, _, _ in missing]
        for index, found in zip(at, _match_base(base, [m[1:] for m in missing]), strict=True):
            source, pairs[index] = newer[index], np.concatenate([pairs[index], found])
            entry = (source.rows, pairs[index])
            self._cache.put(_pair_key(base, source), entry, pairs[index].nbytes + _ENTRY_BYTES)
        return _union(pairs)


@dataclass(frozen=True)
class PlanStale:
    """The stale sets of one plan's sources: the base's, then each region's, newest first.

    `columns` are what the plan will read beside the keys. `masks` are sources that the plan does
    not read, and that make rows of the base stale all the same.
    """

    base: Source | None
    regions: tuple[tuple[Source, ...], ...]
    sets: StaleSets
    columns: tuple[str, ...] = ()
    masks: tuple[Source, ...] = ()

    @property
    def sources(self) -> tuple[Source, ...]:
        """All sources; a source's place is its ordinal in the plan."""
        return (*(() if self.base is None else (self.base,)), *self._read)

    @property
    def _read(self) -> tuple[Source, ...]:
        return tuple(source for region in self.regions for source in region)

    @property
    def _newer(self) -> tuple[Source, ...]:
        return (*self._read, *self.masks)

    def open(self) -> None:
        """Open all sources, several at once: on an object store each takes some round trips."""
        closed = [source for source in self.sources if not source.ready]
        if closed:
            at_once(lambda source: source.open(self.columns), closed)
        unread = [source for source in self.masks if not source.ready]
        if unread:
            at_once(lambda source: source.open(), unread)

    def compute(self) -> list[RowAddresses]:
        """One set a source, by ordinal."""
        self.open()
        found: list[RowAddresses] = []
        if self.base is not None:
            found.append(self.sets.of_base(self.base, self._newer))
        for region in self.regions:
            found += self.sets.of_region(region)
        return found

    def known_rows(self) -> int | None:
        """How many rows of all sources are stale, if that is known without reading."""
        total = 0
        if self.base is not None:
            base = self.sets.cached_base(self.base, self._newer)
            if base is None:
                return None
            total = len(base)
        for region in self.regions:
            sets = self.sets.cached_region(region)
            if sets is None:
                return None
            total += sum(map(len, sets))
        return total


def _keys_of(source: Source) -> SourceKeys:
    return source.keys()


def _region_key(sources: Sequence[Source]) -> Hashable:
    return ("stale in region above", sources[-1].identity)


def _base_key(base: Source, newer: Sequence[Source]) -> Hashable:
    return ("stale in base", base.identity, cover_of(newer))


def _pair_key(base: Source, newer: Source) -> Hashable:
    return ("stale in base by", base.identity, newer.identity)


def _nothing() -> RowAddresses:
    return np.empty(0, np.uint64)


def _union(parts: Sequence[RowAddresses]) -> RowAddresses:
    # By sorting: numpy's own unique hashes, which takes ten times as long.
    merged = np.sort(np.concatenate([_nothing(), *parts]))
    return merged[np.append(True, merged[1:] != merged[:-1])] if len(merged) else merged


def _newer_than(old: Cover, new: Cover) -> int | None:
    """How many sources `new` has above all of `old`, whose newest one may have grown; `_EQUAL` if
    the two are equal, None if `new` is no such extension."""
    extra = len(new) - len(old)
    if old == new:
        return _EQUAL
    if extra < 0 or new[extra + 1 :] != old[1:]:
        return None
    (old_top, old_rows), (top, rows) = old[0], new[extra]
    return extra if old_top == top and rows >= old_rows else None


def _from_scratch(sources: Sequence[Source]) -> list[RowAddresses]:
    keys = at_once(_keys_of, sources)
    numbers = KeyCodes(concat([k.column for k in keys]))
    seen = np.zeros(numbers.size, np.bool_)
    known = 0
    sets, start = [], 0
    for k in keys:
        codes = numbers.codes[start : start + len(k.addresses)]
        start += len(codes)
        fresh = ~seen[codes]
        seen[codes] = True
        held = int(np.count_nonzero(seen))
        stale = ~fresh | k.deleted
        if held - known < np.count_nonzero(fresh):
            # Rarely is a key twice in one source, and telling its last row takes much memory.
            stale |= repeated_later_codes(codes, np.empty(numbers.size, np.int32))
        known = held
        sets.append(np.sort(k.addresses[stale]))
    return sets


def _extended(sources: Sequence[Source], old: _RegionSets, extra: int) -> list[RowAddresses]:
    """The sets after `extra` new sources came and the one below them perhaps grew."""
    top, grown_from = sources[extra], old.cover[0][1]
    sets = _from_scratch(sources[: extra + 1])
    new = [source.keys().column for source in sources[:extra]]
    new.append(_tail(top, grown_from))
    added = concat(new)
    if not len(added):
        return [*sets, *old.sets[1:]]
    numbers = KeyCodes(added)
    for source, stale in zip(sources[extra + 1 :], old.sets[1:], strict=True):
        keys = source.keys()
        rows, _ = numbers.find(keys.column)
        sets.append(_union([stale, keys.addresses[rows]]) if len(rows) else stale)
    return sets


def _tail(source: Source, start: int) -> KeyColumn:
    return key_column(source.keys().table.slice(start).columns)


def _match_base(base: Source, newer: Sequence[tuple[Source, int]]) -> Iterator[RowAddresses]:
    """For each newer source, its rows from a position on: the base's rows with the same keys."""
    if not newer:
        return
    at_once(_keys_of, [source for source, _ in newer])
    columns = [_tail(source, start) for source, start in newer]
    numbers = KeyCodes(concat(columns))
    # Not filled beforehand: of eight bytes a code, most pages would be written for nothing.
    address = np.empty(numbers.size, np.uint64)
    held = np.zeros(numbers.size, np.bool_)
    piece = _CACHED_ROWS if numbers.direct else _MATCH_ROWS
    for column, addresses in _base_keys(base, newer, len(numbers.codes), piece):
        rows, codes = numbers.find(column)
        address[codes] = addresses[rows]
        held[codes] = True
    start = 0
    for column in columns:
        codes = numbers.codes[start : start + len(column)]
        start += len(column)
        yield address[codes[held[codes]]]


def _base_keys(
    base: Source, newer: Sequence[tuple[Source, int]], count: int, piece: int
) -> Iterator[tuple[KeyColumn, RowAddresses]]:
    """The base's keys, in large pieces; only those that matter if its btree finds them faster."""
    tables = [source.keys().table.slice(start) for source, start in newer]
    names = tables[0].column_names
    filters: tuple[Filter, ...] = ()
    if count * _ROWS_PER_INDEXED_KEY < base.rows:
        filters = _key_filter(KeyBatch(pa.concat_tables(tables)))
    for part in range(base.parts):
        batches: list[pa.RecordBatch] = []
        rows = 0
        for batch in base.scan(names, filters, None, part):
            batches.append(batch)
            rows += batch.num_rows
            if rows >= piece:
                yield _piece(batches, names)
                batches, rows = [], 0
        if batches:
            yield _piece(batches, names)


def _key_filter(keys: KeyBatch) -> tuple[Filter, ...]:
    sql = key_condition(keys)
    if sql is None:
        return ()

    def evaluate(batch: pa.RecordBatch) -> pa.BooleanArray:
        return pc.is_in(key_column(batch.columns), value_set=one_array(keys.column))

    return (Filter(sql, evaluate, tuple(keys.names)),)


def _piece(
    batches: Sequence[pa.RecordBatch], names: Sequence[str]
) -> tuple[KeyColumn, RowAddresses]:
    table = pa.Table.from_batches(batches)
    return key_column(table.select(names).columns), table[ROW_ADDRESS].to_numpy()


# Sources' identities are unique in the process, so all tables can share one bound.
STALE_SETS = StaleSets()
