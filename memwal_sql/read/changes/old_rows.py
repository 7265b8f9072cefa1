"""The rows that the changes of a region's feed replaced or deleted.

The old row of a change is the newest row of its key among all changes before it in the region's
order. Its state right before a generation is exact: a base version with some merge progress, and
the generations above that. Before a change within the generation come the WAL entries of the
generation up to there. The state is found by the region's manifests, which say where in the WAL a
generation begins (protocol rule 6): the newest one that is not past the place.

Of the base versions only those will do that have no row of a later generation
(`_whole_versions`).

A collection deletes the WAL entries of whole generations, those that were flushed before the grace
period. It keeps the base version of that time, the generations above its progress, and the
manifests since (`maintain/gc`). So where it has left the changes, it has left their old rows, too,
but for single entries that stay on their own: those that native code looks for, or that a
checkpoint holds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from uuid import UUID
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.arrow.large_columns import concatenated
from exec_nodes.base.columns import KEY_POSITION_FIELD, TOMBSTONE, TOMBSTONE_FIELD
from exec_nodes.base.thresholds import Thresholds
from exec_nodes.evolution.known import known_column, stored_rows
from exec_nodes.evolution.project import ByFieldId, CurrentSchema, same_columns
from exec_nodes.evolution.widen import widened, widens
from exec_nodes.keys.codes import KeyCodes
from exec_nodes.keys.keys import KeyBatch, key_column
from exec_nodes.sources.source import Source
from memwal_sql.errors import (
    ChangesCollectedError,
    NotFoundError,
    SourceGoneError,
)
from memwal_sql.read.changes.offsets import ChangeOffset
from memwal_sql.read.changes.stored_changes import StoredChanges
from memwal_sql.read.lookup import FoundRows, KeySource, Places, search
from memwal_sql.read.pinned import PinnedTable
from memwal_sql.read.region import RegionReader, StaleBaseError
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.state.entry_rows import entry_rows
from memwal_sql.state.memtable import MemTable
from memwal_sql.state.replay import read_ahead
from memwal_sql.storage.base.merge_token import partial_generation, pass_shard
from memwal_sql.storage.base.versions import BaseVersion, base_versions
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.storage.wal.log import WalEntry
from memwal_sql.storage.wal.order import Order

BEFORE = "_before"

_GONE = (StaleBaseError, SourceGoneError, NotFoundError)


class Lookups(Thresholds):
    """The most rows, and about the most bytes, whose old rows are looked up at once."""

    rows = 50_000
    nbytes = 16 << 20


def struct_of(schema: pa.Schema, columns: Sequence[str]) -> pa.DataType:
    """The type of an old row with these columns of a table."""
    return pa.struct([schema.field(name).with_nullable(True) for name in columns])


@dataclass(slots=True)
class _State:
    """The region's rows at a place.

    Attributes:
        whole: what the changes after the place belong to.
        place: the place.
        log: the rows of the WAL entries up to there that `older` lacks.
        older: the generations, newest first, and the base table.
        stored: the columns of these.
    """

    whole: tuple[bool, int | None]
    place: ChangeOffset
    log: MemTable
    older: tuple[KeySource, ...]
    stored: pa.Schema


class Kept(Thresholds):
    """About the most bytes of log that are kept between feeds, of all regions together."""

    nbytes = 256 << 20


class _KeptStates:
    """Where the last feeds of regions have ended, so that a follower that asks again and again need
    not read the log of the generation anew each time. The last one is kept at any size."""

    def __init__(self) -> None:
        self._states: WeakKeyDictionary[RegionReader, _State] = WeakKeyDictionary()
        self._lock = Lock()

    def pop(self, region: RegionReader) -> _State | None:
        """What is kept of a region, for the caller alone."""
        with self._lock:
            return self._states.pop(region, None)

    def keep(self, region: RegionReader, state: _State) -> None:
        """Keep a state, and of the others those that were kept last."""
        with self._lock:
            self._states.pop(region, None)
            others = list(self._states.items())
            self._states[region] = state
            nbytes = state.log.bytes
            for other, state in reversed(others):
                nbytes += state.log.bytes
                if nbytes > Kept.nbytes:
                    del self._states[other]


_KEPT = _KeptStates()


class OldRows:
    """Finds the old rows of one region's changes, in the order of the feed."""

    def __init__(
        self, context: TableContext, region: RegionReader, base: BaseTable, columns: Sequence[str]
    ) -> None:
        self._context = context
        self._region = region
        self._base = base
        self._wal = context.wal(region.region_id, base.stored)
        self._manifests = RegionManifests(context.store, region.region_id)
        self._pinned = PinnedTable(context)
        self._names = CurrentSchema(base.stored, keeps_types=True)
        self._schema = base.info.schema
        self._key = base.info.primary_key
        self._columns = tuple(columns)
        self._type = struct_of(self._schema, columns)
        self._state = _KEPT.pop(region)
        if self._state is not None and not same_columns(self._state.stored, base.stored):
            self._state = None

    def of(
        self, changes: Iterator[StoredChanges]
    ) -> Iterator[tuple[StoredChanges, pa.StructArray]]:
        """Each piece with an old row for each of its rows; null where there was none.

        Raises ChangesCollectedError where files that tell were collected.
        """
        some: list[StoredChanges] = []
        rows = nbytes = 0
        for change in changes:
            is_enough = rows >= Lookups.rows or nbytes >= Lookups.nbytes
            if some and (change.whole != some[0].whole or is_enough):
                yield from self._pairs(some)
                some, rows, nbytes = [], 0, 0
            some.append(change)
            rows, nbytes = rows + change.batch.num_rows, nbytes + change.batch.nbytes
        if some:
            yield from self._pairs(some)
        if self._state is not None:
            _KEPT.keep(self._region, self._state)

    def _pairs(
        self, changes: Sequence[StoredChanges]
    ) -> Iterator[tuple[StoredChanges, pa.StructArray]]:
        """The same for changes of one generation."""
        batch = concatenated([change.batch for change in changes])
        try:
            try:
                old = self._old_rows(batch, self._state_before(changes[0]))
            except _GONE:  # they were merged and collected since
                self._state = None
                old = self._old_rows(batch, self._state_before(changes[0]))
        except _GONE as error:
            raise self._collected(changes[0].before) from error
        if changes[0].log:
            state = self._state_before(changes[0])
            state.log.append(batch)
            state.place = changes[-1].place
        start = 0
        for change in changes:
            yield change, old.slice(start, change.batch.num_rows)
            start += change.batch.num_rows

    def _old_rows(self, rows: pa.RecordBatch, state: _State) -> pa.StructArray:
        """The old row of each of these rows, which come one after the other."""
        if not rows.num_rows:
            return pa.array([], self._type)
        at = _same_key_before(rows, self._key)
        first = np.flatnonzero(at < 0)
        keys = KeyBatch(pa.Table.from_batches([rows.select(self._key).take(pa.array(first))]))
        older = FoundRows(pa.schema([self._schema.field(name) for name in self._columns]))
        search(keys, first, (state.log.snapshot(), *state.older), older)
        stored, places = older.with_places()
        at[(at >= 0) & rows[TOMBSTONE].to_numpy(zero_copy_only=False)[at]] = -1
        at[places] = np.arange(len(places)) + rows.num_rows
        # Deletes have placeholders in columns that are not nullable.
        everything = pa.schema(list(self._type))
        both = [
            pa.Table.from_arrays(t.columns, schema=everything)
            for t in (pa.Table.from_batches([rows]).select(self._columns), stored)
        ]
        values = concatenated(pa.concat_tables(both).to_batches())
        is_new = pa.array(at < 0)
        columns = values.take(pa.array(at, mask=at < 0)).columns
        return pa.StructArray.from_arrays(columns, fields=list(self._type), mask=is_new)

    def _state_before(self, change: StoredChanges) -> _State:
        state = self._state
        if state is None or (state.whole, state.place) != (change.whole, change.before):
            manifest = self._manifest(change.before)
            older, log = self._older(manifest), self._log(manifest, change.before)
            self._state = state = _State(change.whole, change.before, log, older, self._base.stored)
        return state

    def _manifest(self, place: ChangeOffset) -> RegionManifest:
        """The newest manifest of the region that has flushed nothing past a place."""
        newest = self._region.refresh()
        if _is_up_to(newest, place):
            return newest
        versions = self._manifests.versions()
        # Below a gap is what was put there when its predecessors were collected (rule 8).
        gaps = np.flatnonzero(np.diff(versions) > 1)
        versions = versions[int(gaps[-1]) + 1 if len(gaps) else 0 :]

        def is_past(version: int) -> bool:
            return not _is_up_to(self._manifests.read(version), place)

        number = bisect_left(versions, True, key=is_past)
        if not number:
            raise self._collected(place)
        return self._region.with_values(self._manifests.read(versions[number - 1]))

    def _log(self, manifest: RegionManifest, place: ChangeOffset) -> MemTable:
        """The rows of WAL entries up to a place that a manifest has not flushed."""
        memtable = MemTable(self._region.name, 0, self._schema, self._key)
        order = Order(self._wal, frozenset(self._region.manifest.transactions))
        first = manifest.replay_after_wal_entry_position + 1
        for position, entry in read_ahead(self._wal, first, place.position + 1):
            is_open = isinstance(entry, WalEntry) and self._wal.verdict(entry) is None
            if entry is None or (is_open and not self._wal.exists(position)):
                raise self._collected(place)
            rows = order.rows_of(position, entry)
            if rows is not None:
                stored = stored_rows(rows.batch, memtable.schema)
                path = self._wal.path(position)
                memtable.append(entry_rows(stored, memtable.schema, self._key, path))
        return memtable

    def _older(self, manifest: RegionManifest) -> tuple[KeySource, ...]:
        """The generations below a manifest's current one, and a base version below them."""
        if manifest.version == self._region.manifest.version:
            try:  # nothing past the newest manifest can be merged
                return self._over(self._base, manifest)
            except StaleBaseError:
                pass
        return self._over(self._base_before(manifest), manifest)

    def _over(self, base: BaseTable, manifest: RegionManifest) -> tuple[KeySource, ...]:
        current = replace(base, names=self._names, info=self._base.info)
        reader = RegionReader(self._context, manifest, current)
        return (*reader.sources(current, manifest, ()), self._base_rows(base))

    def _base_before(self, manifest: RegionManifest) -> BaseTable:
        """The newest base version without rows of a manifest's current or later generations."""
        chosen = None
        for version, merged in _whole_versions(
            base_versions(self._context.store, self._context.scope), self._region.region_id
        ):
            if merged < manifest.current_generation:
                chosen = version
        if chosen is None:
            raise StaleBaseError("no base version has so few generations any more")
        return self._base if chosen == self._base.version else self._pinned.base(chosen)

    def _base_rows(self, base: BaseTable) -> KeySource:
        if same_columns(base.stored, self._base.stored):
            return base.source
        by_id = ByFieldId(base.stored, self._base.stored)
        return _EarlierColumns(base.source, by_id, self._schema)

    def _collected(self, place: ChangeOffset) -> ChangesCollectedError:
        return ChangesCollectedError(
            f"region {self._region.name}: the old rows of the changes after WAL position "
            f"{place.position} were collected: begin again with the rows of a checkpoint, made by "
            "table.checkpoint(name) and read by table.as_of(checkpoint=name), and go on from its "
            "change_offsets()"
        )


@dataclass(frozen=True, slots=True)
class _EarlierColumns:
    """A base version whose columns have changed since, in the columns of `now`."""

    source: Source
    by_id: ByFieldId
    now: pa.Schema

    def might_contain(self, keys: KeyBatch) -> npt.NDArray[np.bool_]:
        return self.source.might_contain(keys)

    def take(self, keys: KeyBatch, columns: Sequence[str]) -> pa.Table:
        present = self.by_id.present
        own = keys.table.rename_columns([present[name] for name in keys.names])
        names = [present[name] for name in columns if name in present]
        rows = self.source.take(KeyBatch(own), names)
        taken = {name: self._column(name, rows) for name in columns}
        for field in (TOMBSTONE_FIELD, KEY_POSITION_FIELD):
            taken[field.name] = rows[field.name]
        return pa.table(taken)

    def _column(self, name: str, rows: pa.Table) -> pa.ChunkedArray | pa.Array:
        field, stored = self.now.field(name), self.by_id.present.get(name)
        if stored is None:
            return pa.nulls(rows.num_rows, field.type)
        column = self.by_id.column(name, rows[stored])
        is_wider = widens(field.type, column.type)
        return known_column(column, field) if is_wider else widened(column, field)


def _whole_versions(versions: Iterable[BaseVersion], region: UUID) -> Iterator[tuple[int, int]]:
    """The versions whose rows are those of all generations of a region up to their merge progress
    and of no others, ascending, and this progress.

    Left out are those that have a part of more generations, those that an index commit has set back
    to less progress than one before them (protocol rule 19), and those that follow a commit of rows
    without progress: native code so deletes the rows of a generation's tombstones, before it merges
    the rest.
    """
    before: Mapping[UUID, int] = {}
    most, is_touched, is_first = (0, 0), False, True
    for version in versions:
        if version.details is None:
            continue
        progress = version.details.merged_generations
        own = progress.get(region, 0), progress.get(pass_shard(region), 0)
        if own[0] > most[0]:
            is_touched = False
        elif version.operation in ("update", "delete") and not is_first:
            is_touched |= all(mark <= before.get(shard, 0) for shard, mark in progress.items())
        is_set_back = own[0] < most[0] or own[1] < most[1]
        if not is_set_back and not is_touched and partial_generation(progress, region) is None:
            yield version.version, own[0]
        most = max(own[0], most[0]), max(own[1], most[1])
        before, is_first = progress, False


def _is_up_to(manifest: RegionManifest, place: ChangeOffset) -> bool:
    """Whether a manifest has flushed nothing past a place."""
    flushed = manifest.replay_after_wal_entry_position
    generation = place.generation or 0
    return flushed <= place.position and manifest.current_generation <= generation + 1


def _same_key_before(rows: pa.RecordBatch, key: Sequence[str]) -> Places:
    """The place of the last row before each row that has its key; -1 without one."""
    codes = KeyCodes(key_column(rows.select(key).columns)).codes
    by_key = np.argsort(codes, kind="stable")
    again = np.flatnonzero(codes[by_key[1:]] == codes[by_key[:-1]])
    before = np.full(len(codes), -1)
    before[by_key[again + 1]] = by_key[again]
    return before
