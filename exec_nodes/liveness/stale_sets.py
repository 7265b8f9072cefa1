"""Stale sets: the rows of a source that are not rows of the table.

Protocol rule 16: they belong to a pair (source, newer sources) and never change, so they are
computed once, from unfiltered keys, and cached. A row is stale if a newer source of its region
holds its key, as a row or as a tombstone, if a later row of its own source does, or if it is a
tombstone itself (Specification 2, "LSM Tree Merging Read": highest `_gen`, then `_rowaddr`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

import memwal_native
from exec_nodes.base.columns import RowAddresses
from exec_nodes.base.lazy import lazy_property
from exec_nodes.base.tasks import in_background, map_concurrently
from exec_nodes.keys.codes import KeyCodes, code_set, concat, superseded
from exec_nodes.liveness.base_join import BaseMatch, Piece, Superseded, keys_of
from exec_nodes.resident.store import ENTRY_BYTES, STORE, Key, ResidentStore
from exec_nodes.sources.source import Source, SourceKeys, is_same_table

Cover = tuple[tuple[Hashable, int], ...]

_EQUAL = -1
_PARTS = 16
_KIND = "stale rows"


def cover_of(sources: Sequence[Source]) -> Cover:
    """The sources that a stale set was computed against; `rows` names the prefix of a MemTable."""
    return tuple([(source.identity, source.rows) for source in sources])


@dataclass(frozen=True)
class _RegionSets:
    cover: Cover
    sets: tuple[RowAddresses, ...]

    @property
    def nbytes(self) -> int:
        return sum(int(s.nbytes) + ENTRY_BYTES for s in self.sets)


class StaleSets:
    """Computes and caches stale sets. Every set is sorted, unique and uint64."""

    def __init__(self, store: ResidentStore = STORE) -> None:
        self._store = store
        self._under_way: set[Key] = set()

    def cached_region(self, sources: Sequence[Source]) -> tuple[RowAddresses, ...] | None:
        """`of_region` if it is known already."""
        if not sources:
            return ()
        cached = self._store.get(_region_key(sources))
        return cached.sets if cached is not None and cached.cover == cover_of(sources) else None

    def of_region(
        self, sources: Sequence[Source], numbers: KeyCodes | None = None
    ) -> tuple[RowAddresses, ...]:
        """One set a source, given a region's sources newest first.

        `numbers` are the codes of all their keys, one source after the other, if somebody has them.
        """
        cached = self.cached_region(sources)
        if cached is not None:
            return cached
        key = _region_key(sources)
        with self._store.locked(key):
            cover, old = cover_of(sources), self._store.get(key)
            extra = None if old is None else _newer_than(old.cover, cover)
            if old is None or extra is None:
                sets = _from_scratch(sources, numbers)
            elif extra == _EQUAL:
                return tuple(old.sets)
            else:
                sets = _extended(sources, old, extra)
            entry = _RegionSets(cover, tuple(sets))
            self._store.put(key, entry, entry.nbytes)
            return entry.sets

    def cached_base(self, base: Source, newer: Sequence[Source]) -> RowAddresses | None:
        """`of_base` if it is known already."""
        cached: RowAddresses | None = self._store.get(_base_key(base, newer))
        return cached

    def of_base(self, base: Source, newer: Sequence[Source]) -> RowAddresses:
        """The base table's stale rows, given all sources of all regions that are read."""
        return self._store.compute(
            _base_key(base, newer),
            lambda: self._base_union(base, newer),
            lambda addresses: int(addresses.nbytes),
        )

    def find_base(self, base: Source, newer: Sequence[Source]) -> None:
        """Compute `of_base` in the background."""
        key = _base_key(base, newer)
        if key not in self._under_way:
            self._under_way.add(key)
            in_background(partial(self._find_base, key, base, newer))

    def extend(self, base: Source, newer: Sequence[Source]) -> None:
        """Carry `of_base` over to this version of the base, if that of another one is known."""
        versions = {key.owners[0] for key in self._store.used(_KIND)}
        if any(
            version != base.identity and is_same_table(version, base.identity)
            for version in versions
        ):
            self.of_base(base, newer)

    def new_match(self, base: Source, newer: Sequence[Source]) -> BaseMatch | None:
        """A match that a scan of the whole base can do on its way, see `remember`.

        None where the set, or a part of it, is known or found without reading all keys.
        """
        if not newer or self.cached_base(base, newer) is not None:
            return None
        if any(self._store.get(_pair_key(base, source)) is not None for source in newer):
            return None
        match = BaseMatch([(source, 0) for source in newer])
        return None if match.few(base) else match

    def remember(self, base: Source, newer: Sequence[Source], superseded: Superseded) -> None:
        """Keep the result of a finished match from `new_match`."""
        for place, source in enumerate(newer):
            nbytes = superseded.nbytes // len(newer)
            pair = _Pair(source.rows, [partial(_superseded_by, superseded, place)], nbytes)
            self._store.put(_pair_key(base, source), pair, nbytes)
        union = superseded.union()
        self._store.put(_base_key(base, newer), union, union.nbytes)

    def _find_base(self, key: Key, base: Source, newer: Sequence[Source]) -> None:
        try:
            self.of_base(base, newer)
        finally:
            self._under_way.discard(key)

    def _base_union(self, base: Source, newer: Sequence[Source]) -> RowAddresses:
        pairs = {source.identity: self._pair(base, source) for source in newer}
        matched = {(identity, pair.rows) for identity, pair in pairs.items()}
        missing = [
            (source, pairs[source.identity].rows)
            for source in newer
            if pairs[source.identity].rows < source.rows
        ]
        added = _rows_superseded(base, missing)
        for (source, _), rows in zip(missing, added, strict=True):
            pair = pairs[source.identity].grown(source.rows, rows)
            self._store.put(_pair_key(base, source), pair, pair.nbytes)
            pairs[source.identity] = pair
        last: _BaseSet | None = self._store.get(_last_key(base))
        if last is not None and matched.issuperset(last.cover):
            # The usual case, MemTables that have grown: the others' rows are put together already.
            before = {identity for identity, _ in last.cover}
            new = [pair.addresses for identity, pair in pairs.items() if identity not in before]
            union = _union([last.addresses, *added, *new])
        else:
            union = _union([pair.addresses for pair in pairs.values()])
        self._store.put(_last_key(base), _BaseSet(cover_of(newer), union), union.nbytes)
        return union

    def _pair(self, base: Source, source: Source) -> _Pair:
        """The rows matched already, of which there may be none."""
        pair: _Pair | None = self._store.get(_pair_key(base, source))
        # An older prefix of a MemTable than the one that is cached is matched again.
        return _Pair(0, (), 0) if pair is None or pair.rows > source.rows else pair


class _Pair:
    """The base's rows that the first `rows` rows of a newer source supersede, sorted; in parts,
    each with sorted rows and found when first asked for: most are superseded before that."""

    def __init__(self, rows: int, parts: Sequence[Callable[[], RowAddresses]], nbytes: int) -> None:
        self.rows = rows
        self.nbytes = nbytes
        self._parts = parts

    @lazy_property
    def addresses(self) -> RowAddresses:
        return _union([part() for part in self._parts])

    def grown(self, rows: int, more: RowAddresses) -> _Pair:
        """With the base's rows that further rows of the source supersede."""
        together = len(self._parts) >= _PARTS
        parts = (self.addresses.view,) if together else self._parts
        return _Pair(rows, (*parts, more.view), self.nbytes + more.nbytes)


@dataclass(frozen=True)
class _BaseSet:
    """The base's stale rows, given these newer sources."""

    cover: Cover
    addresses: RowAddresses


@dataclass(frozen=True)
class PlanStale:
    """The stale sets of one plan's sources: the base's, then each region's, newest first.

    `columns` are the columns that the plan will read besides the keys. `masks` are sources that the
    plan does not read, but that make rows of the base stale. A plan that reads the `whole` base,
    without filters and limit, need not know in advance what is stale in it: see `learner`.
    """

    base: Source | None
    regions: tuple[tuple[Source, ...], ...]
    sets: StaleSets
    columns: tuple[str, ...] = ()
    masks: tuple[Source, ...] = ()
    whole: bool = False

    @lazy_property
    def sources(self) -> tuple[Source, ...]:
        """All sources; a source's place is its ordinal in the plan."""
        return (*(() if self.base is None else (self.base,)), *self.newer)

    @lazy_property
    def newer(self) -> tuple[Source, ...]:
        """The regions' sources."""
        return tuple([source for region in self.regions for source in region])

    @property
    def _superseding(self) -> tuple[Source, ...]:
        """All that make rows of the base stale."""
        return (*self.newer, *self.masks)

    def open(self) -> None:
        """Open all sources, several at once: on an object store each takes some round trips."""
        _ = self._opened

    @lazy_property
    def _opened(self) -> bool:
        closed = [source for source in self.sources if not source.ready]
        if closed:
            map_concurrently(lambda source: source.open(self.columns, whole=self.whole), closed)
        unread = [source for source in self.masks if not source.ready]
        if unread:
            map_concurrently(lambda source: source.open(), unread)
        return True

    @lazy_property
    def learner(self) -> BaseMatch | None:
        """Finds the stale rows of the base while they are scanned, if they are not known.

        The same for all partitions of a plan. Whoever scans one gives a `piece` of it every batch,
        leaves out the rows that it finds stale, and hands the piece over to `learned` when the
        partition is done: `compute` has no set for the base then.
        """
        if self.base is None or not self.whole:
            return None
        self.open()
        return self.sets.new_match(self.base, self._superseding)

    def learned(self, match: BaseMatch, partition: int, piece: Piece) -> None:
        """A partition of the base was scanned to its end."""
        parts = 0 if self.base is None else self.base.parts
        learned_rows = match.finished(partition, piece, parts)
        if self.base is not None and learned_rows is not None:
            self.sets.remember(self.base, self._superseding, learned_rows)

    def compute(self) -> list[RowAddresses]:
        """One set a source, by ordinal."""
        return self._sets

    @lazy_property
    def _sets(self) -> list[RowAddresses]:
        self.open()
        sets: list[RowAddresses] = []
        learner = self.learner
        if self.base is not None:
            reads_cache = learner is None
            sets.append(
                self.sets.of_base(self.base, self._superseding) if reads_cache else _nothing()
            )
        # With one region, its keys are those that the learner has numbered.
        single = len(self.regions) == 1 and not self.masks
        numbers = learner.numbers if single and learner is not None else None
        for region in self.regions:
            sets += self.sets.of_region(region, numbers)
        return sets

    def known_rows(self) -> int | None:
        """The number of stale rows of all sources, if it is known without reading."""
        total = 0
        if self.base is not None:
            base = self.sets.cached_base(self.base, self._superseding)
            if base is None:
                return None
            total = len(base)
        for region in self.regions:
            sets = self.sets.cached_region(region)
            if sets is None:
                return None
            total += sum(map(len, sets))
        return total


def _region_key(sources: Sequence[Source]) -> Key:
    return Key(_KIND, (sources[-1].identity,))


def _base_key(base: Source, newer: Sequence[Source]) -> Key:
    return Key(_KIND, (base.identity,), cover_of(newer))


def _pair_key(base: Source, newer: Source) -> Key:
    return Key(_KIND, (base.identity, newer.identity))


def _last_key(base: Source) -> Key:
    return Key(_KIND, (base.identity,))


def _superseded_by(superseded: Superseded, place: int) -> RowAddresses:
    return np.sort(superseded.of(place))


def _rows_superseded(base: Source, newer: Sequence[tuple[Source, int]]) -> list[RowAddresses]:
    """For each source, the base's rows that its rows from a position on supersede, sorted."""
    sources = [source for source, _ in newer]
    rows = []
    for keys, (_, start) in zip(keys_of(sources), newer, strict=True):
        resident = base.rows_of(keys.slice(start).column)
        if resident is None:
            superseded = BaseMatch(newer).read(base)
            return [_superseded_by(superseded, place) for place in range(len(newer))]
        rows.append(resident)
    return rows


def _nothing() -> RowAddresses:
    return np.empty(0, np.uint64)


def _union(parts: Sequence[RowAddresses]) -> RowAddresses:
    """The distinct addresses of parts that are each sorted."""
    return np.frombuffer(memwal_native.union(list(parts)), np.uint64)


def _newer_than(old: Cover, new: Cover) -> int | None:
    """The number of sources that `new` has above all of `old`, whose newest one may have grown;
    `_EQUAL` if the two are equal, None if `new` is not such an extension."""
    extra = len(new) - len(old)
    if old == new:
        return _EQUAL
    if extra < 0 or new[extra + 1 :] != old[1:]:
        return None
    (old_top, old_rows), (top, rows) = old[0], new[extra]
    return extra if old_top == top and rows >= old_rows else None


def _from_scratch(sources: Sequence[Source], numbers: KeyCodes | None = None) -> list[RowAddresses]:
    keys = keys_of(sources)
    if len(keys) == 1:
        return [keys[0].hidden]
    return _hidden(keys, numbers or KeyCodes(concat([k.column for k in keys])))


def _hidden(keys: Sequence[SourceKeys], numbers: KeyCodes) -> list[RowAddresses]:
    """The stale rows of sources with these key codes, newest first: rows whose key a newer source
    has."""
    seen = code_set(numbers)
    sets, start = [], 0
    for k in keys:
        codes = numbers.codes[start : start + len(k.addresses)]
        start += len(codes)
        sets.append(np.sort(k.addresses[superseded(codes, k.deleted, seen)]))
    return sets


def _extended(sources: Sequence[Source], old: _RegionSets, extra: int) -> list[RowAddresses]:
    """The sets after `extra` new sources came and the one below them perhaps grew."""
    grown_from = old.cover[0][1]
    keys = keys_of(sources)
    grown = keys[extra]
    if len(keys) == 1:
        return [grown.hidden]
    new = [*keys[:extra], grown.slice(grown_from)]
    numbers = KeyCodes(concat([k.column for k in new]))

    def extended(k: SourceKeys, stale: RowAddresses) -> RowAddresses:
        rows, _ = numbers.find(k.column)
        return _union([stale, k.addresses[rows]]) if len(rows) else stale

    if extra:
        *sets, added = _hidden(new, numbers)
        sets.append(np.concatenate([extended(grown.slice(0, grown_from), old.sets[0]), added]))
    else:
        sets = [grown.hidden]
    return sets + list(map(extended, keys[extra + 1 :], old.sets[1:]))


# Sources' identities are unique in the process, so all tables can share one bound.
STALE_SETS = StaleSets()
