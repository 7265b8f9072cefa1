"""One region as readers see it: its manifest, its generations and its unflushed rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from threading import Lock
from typing import Any
from uuid import UUID

import pyarrow as pa

from exec_nodes.base.thresholds import Thresholds
from exec_nodes.evolution.project import same_columns
from exec_nodes.resident.store import STORE
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.sources.memtable_source import MemTableSource
from exec_nodes.sources.source import Source
from memwal_sql.errors import MemWalError, RepairError
from memwal_sql.read.log_end import LogEnd
from memwal_sql.read.region_probe import RegionProbe, RegionProbes
from memwal_sql.read.wal_tail import WalTail
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.state.open_writers import live_writer
from memwal_sql.state.tail import Tail
from memwal_sql.storage.base.sessions import new_session
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.paths import BLOOM_FILTER, generation_folder, generation_uri
from memwal_sql.storage.records.intent import TransactionName
from memwal_sql.storage.region.manifest import FlushedGeneration, RegionManifest
from memwal_sql.storage.region.progress import check_progress
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.storage.wal.torn import whole_end
from planner.model import TableInfo
from planner.regions.ids import lancedb_id, lancedb_values
from planner.regions.values import RegionValue, is_value_of, region_name, type_of

_GENERATION = attrgetter("generation")


class Merged(Thresholds):
    """The number of merged generations that stay open where the base table has vector or full-text
    indexes, which lack them for a moment."""

    kept_open = 32


class StaleBaseError(Exception):
    """The base version is older than the region's state; take a newer one and retry."""


@dataclass(frozen=True)
class Unflushed:
    """A manifest and the rows above it, taken so that no row falls between the two.

    `jumped`: the manifest has flushed a transaction that this reader has not seen, so that other
    regions may have been looked at before it was written (protocol rule T11).
    """

    manifest: RegionManifest
    tail: Tail
    jumped: bool = False

    @property
    def memtables(self) -> tuple[MemTableSource, ...]:
        """The rows that are not flushed, ascending by generation."""
        return self.tail.memtables


@dataclass(frozen=True, slots=True)
class _State:
    """The state that a reader has read of its region; replaced as a whole, under one lock.

    Attributes:
        manifest: the newest manifest read.
        stored: the columns of the base table at that time.
        tail: reads unflushed rows in these columns; another tail means other columns.
        generations: the open generations, by folder.
        unmerged: the generations to read for a manifest and a merge progress, newest first.
        merged: the merge progress of the latest base version.
        bridged_after: merged generations above this are read, for an index that lacks them.
    """

    manifest: RegionManifest
    stored: pa.Schema
    tail: WalTail
    generations: Mapping[str, LanceSource] = field(default_factory=dict)
    unmerged: tuple[RegionManifest, int, tuple[LanceSource, ...]] | None = None
    merged: int = 0
    bridged_after: int = 0

    def keeping(self, is_kept: Callable[[str, LanceSource], bool], **changes: Any) -> _State:
        """The state with changes, without the other generations, which are evicted from memory."""
        remaining = {path: s for path, s in self.generations.items() if is_kept(path, s)}
        gone = [s for path, s in self.generations.items() if path not in remaining]
        if gone:
            STORE.evict(*(source.identity for source in gone), *(source.uri for source in gone))
        return replace(self, generations=remaining, unmerged=None, **changes)


@dataclass(frozen=True, slots=True)
class PendingRead:
    """A read of a region that has begun: the `probe` to ask, and the sources since without it.
    `tail` is that of this process's writer of an `epoch`, or has nothing; None to read the WAL.
    `since` is the reader's `RegionReader.seen` before the read."""

    state: _State
    probe: RegionProbe
    tail: Tail | None = None
    epoch: int | None = None
    since: int = 0

    @property
    def sources_by_now(self) -> tuple[Source, ...]:
        """The sources of the last read, or of the manifest, and these MemTables."""
        unmerged = self.state.unmerged
        memtables = self.state.tail.memtables if self.tail is None else self.tail.memtables
        return (*memtables, *(() if unmerged is None else unmerged[2]))


class RegionReader:
    """Follows one region. Reading again is cheap, as immutable data is kept."""

    def __init__(self, context: TableContext, manifest: RegionManifest, base: BaseTable) -> None:
        self.region_id: UUID = manifest.region_id
        self.spec_id = manifest.region_spec_id
        self.values = values_in_order(manifest, base.info)
        self.may_have_twin = may_have_twin(self.region_id, self.spec_id, self.values, base.info)
        self.name = region_name(self.region_id, self.values)
        self.order = (self.spec_id, *_sortable(self.values, self.region_id))
        self._context = context
        self._manifests = RegionManifests(context.store, self.region_id)
        self._probes = RegionProbes(self._manifests, context.clock)
        self.log_end = LogEnd(context.wal(self.region_id))
        self._state = _State(manifest, base.stored, self._new_tail(base))
        # The WAL position up to which an earlier read has taken in the region: whatever a
        # transaction up to there has written to other regions is in their logs by now.
        self.seen = manifest.replay_after_wal_entry_position
        self._lock = Lock()

    @property
    def place(self) -> tuple[UUID, UUID]:
        """The region among those of all tables."""
        return self._context.incarnation, self.region_id

    @property
    def manifest(self) -> RegionManifest:
        """The newest manifest read so far."""
        return self._state.manifest

    @property
    def transactions(self) -> list[TransactionName]:
        """The committed transactions that the last read has met: those that the manifest names, and
        those in the log above it that it has read."""
        return [*self._state.manifest.transactions, *self._state.tail.transactions]

    @property
    def is_quiet(self) -> bool:
        """Whether the last read of the log passed no entry over, which may count after all."""
        return self._state.tail.is_quiet

    def generation(self, base: BaseTable, flushed: FlushedGeneration) -> LanceSource:
        """A generation that a manifest lists, merged or not."""
        return self._generation(self._of_columns(base), base, flushed)

    def refresh(self) -> RegionManifest:
        """The latest manifest; two requests if nothing is new."""
        self.advance(RegionProbe(self._probes, self._state.manifest).latest())
        return self.manifest

    def with_values(self, manifest: RegionManifest) -> RegionManifest:
        """A manifest of the region with its values, even if native code left them out."""
        if manifest.region_values is not None or self.values is None:
            return manifest
        return replace(manifest, region_values=self.values)

    def note_newest(self, manifest: RegionManifest, began: float) -> None:
        """Note that a probe which `began` then found no newer manifest, see `RegionProbe`."""
        self._probes.note(manifest.version, began)

    def advance(self, manifest: RegionManifest) -> None:
        """Note a manifest, unless it is older than the newest.

        Generations that it no longer lists are dropped, as their files may be collected.
        """
        with self._lock:
            if manifest.version > self._state.manifest.version:
                listed = {flushed.path for flushed in manifest.flushed_generations}
                self._state = self._state.keeping(lambda path, _: path in listed, manifest=manifest)

    def check_progress(self, base: BaseTable) -> None:
        """Raise RepairError if `base` has merged more generations than there are."""
        merged = base.details.merged_generations.get(self.region_id, 0)
        check_progress(self._manifests, self._state.manifest, merged)

    def unflushed(self) -> Unflushed:
        """The latest manifest and every MemTable above it (protocol rule 15)."""
        return self.end_read(self.begin_read(None, strong=True))

    def begin_read(
        self, base: BaseTable | None, *, strong: bool, since: int | None = None
    ) -> PendingRead:
        """A read over `base`, or over the base read last, with nothing asked yet. `strong` reads
        have the unflushed rows, too. `since` is what was `seen` before any region of this look was
        read, 0 for a region that was unflushed meanwhile.

        This process's own writer gives its buffered rows as long as nobody has fenced it; rows of
        other writers come from the WAL. The MemTables are taken before anything is asked: rows
        flushed between the two are in both, and dropped later.
        """
        if base is not None and self._context.store.remote:
            self._prepare_sources(base)
        state = self._state if base is None else self._of_columns(base)
        since = self.seen if since is None else since
        writer = live_writer(self._context.identity, self.region_id) if strong else None
        if writer is not None and not same_columns(writer.entry_schema, state.stored):
            # The base has other columns since the writer was opened: the WAL has its rows by field
            # id.
            with suppress(MemWalError):
                writer.flush_wal()
            writer = None
        if writer is not None:
            with suppress(MemWalError):
                tail = writer.tail(since)
                probe = RegionProbe(self._probes, self._state.manifest)
                return PendingRead(state, probe, tail, writer.epoch, since)
        if strong:
            return PendingRead(state, state.tail.probe(self._state.manifest), since=since)
        return PendingRead(state, RegionProbe(self._probes, self._state.manifest), Tail())

    def _prepare_sources(self, base: BaseTable) -> None:
        """Make the manifest's sources before the next read over `base` needs them, without a
        request, so that they can be opened while others are made."""
        manifest, merged = self._state.manifest, base.details.merged_generations
        if (
            self._state.unmerged is None
            and merged.get(self.region_id, 0) < manifest.current_generation
        ):
            with suppress(StaleBaseError):  # perhaps not with the newest manifest
                self.sources(base, manifest, ())

    def end_read(self, pending: PendingRead) -> Unflushed:
        """Finish a read up to the unflushed rows; `sources` takes them, perhaps cut."""
        unflushed = self._unflushed(pending)
        if pending.tail is None or pending.epoch is not None:
            with self._lock:
                self.seen = max(self.seen, unflushed.tail.end)
        return unflushed

    def _unflushed(self, pending: PendingRead) -> Unflushed:
        if pending.tail is not None:
            manifest = pending.probe.latest()
            if manifest is not self._state.manifest:
                self.advance(manifest)
                manifest = self.manifest
            if pending.epoch in (None, manifest.writer_epoch):
                current, tail = manifest.current_generation, pending.tail
                memtables = tuple([m for m in tail.memtables if m.generation >= current])
                end = max(tail.end, manifest.replay_after_wal_entry_position)
                marks = tuple([mark for mark in tail.marks if mark.generation >= current])
                jumped = manifest.last_transaction > pending.since
                return Unflushed(manifest, Tail(memtables, end, tail.fence, marks), jumped)
            writer = live_writer(self._context.identity, self.region_id)
            if writer is not None and writer.epoch < manifest.writer_epoch:
                writer.taken_over(manifest.writer_epoch)  # or a statement would trust its claim
            pending = replace(pending, probe=pending.state.tail.probe(manifest), tail=None)
        reader = pending.state.tail
        manifest, tail = reader.read(pending.probe, self._state.manifest, pending.since)
        self.advance(manifest)
        return Unflushed(manifest, tail, manifest.last_transaction > pending.since)

    def complete_log(self) -> None:
        """Write buffered rows of this process's own writer to the WAL, and make sure that the next
        read finds the end of the log. A writer that can't is fenced or failed, and its rows do not
        count."""
        writer = live_writer(self._context.identity, self.region_id)
        if writer is not None:
            with suppress(MemWalError):
                writer.flush_wal()
        if self._context.store.remote:
            self.log_end.last()

    def whole_end(self, manifest: RegionManifest, end: int) -> int:
        """The log's end as records store it, without a torn last entry (`torn.whole_end`); `end` is
        where a read above `manifest` ended."""
        wal, first = self._context.wal(self.region_id), manifest.replay_after_wal_entry_position + 1
        return whole_end(wal, first, end, manifest.wal_entry_position_last_seen)

    def sources(
        self, base: BaseTable, manifest: RegionManifest, memtables: tuple[MemTableSource, ...]
    ) -> tuple[Source, ...]:
        """The sources of this region that a query reads above the base table, newest first.

        Generations up to the merge progress of the base version are left out; the rest must run
        without a gap (protocol rule 14), otherwise StaleBaseError asks for a newer base version.
        """
        state = self._of_columns(base)
        merged = base.found.details.merged_generations.get(self.region_id, 0)
        newest = self._state
        unmerged = (newest if newest.tail is state.tail else state).unmerged
        if unmerged is None or unmerged[0] is not manifest or unmerged[1] != merged:
            unmerged = manifest, merged, self._flushed(state, base, manifest, merged)
            with self._lock:
                if self._state.tail is state.tail:
                    self._state = replace(self._state, unmerged=unmerged)
        live = sorted([m for m in memtables if m.rows], key=_GENERATION, reverse=True)
        return (*live, *unmerged[2])

    def _flushed(
        self, state: _State, base: BaseTable, manifest: RegionManifest, merged: int
    ) -> tuple[LanceSource, ...]:
        """The generations above the merge progress, newest first. A recorded manifest may be older
        than the base version, which then has all of them."""
        check_progress(self._manifests, manifest, merged)
        with self._lock:
            if merged > self._state.merged:
                lowest = merged
                if base.indexes.names:
                    lowest = min(merged - Merged.kept_open, self._state.bridged_after)
                self._state = self._state.keeping(
                    lambda _, source: source.generation > lowest,
                    merged=merged,
                    bridged_after=merged,
                )
        flushed = sorted(manifest.flushed_generations, key=_GENERATION)
        unmerged = [g for g in flushed if g.generation > merged]
        numbers, last = [g.generation for g in unmerged], manifest.current_generation - 1
        gapless = all(b == a + 1 for a, b in pairwise([merged, *numbers]))
        if len(numbers) != max(0, last - merged) or not gapless:
            raise StaleBaseError(
                f"region {self.region_id} lists the generations {numbers}, but those from "
                f"{merged + 1} to {last} are needed over base version {base.version}"
            )
        return tuple(self._generation(state, base, g) for g in reversed(unmerged))

    def merged(self, base: BaseTable, after: int, through: int) -> tuple[Source, ...] | None:
        """The merged generations above `after` up to `through`, newest first; None if one is no
        longer listed."""
        with self._lock:
            lowest = min(self._state.bridged_after, after)
            self._state = replace(self._state, bridged_after=lowest)
        listed = {
            flushed.generation: flushed for flushed in self._state.manifest.flushed_generations
        }
        chosen = [listed.get(number) for number in range(through, after, -1)]
        generations = [flushed for flushed in chosen if flushed is not None]
        if len(generations) < len(chosen):
            return None
        state = self._of_columns(base)
        return tuple(self._generation(state, base, flushed) for flushed in generations)

    def _of_columns(self, base: BaseTable) -> _State:
        """The state for the columns of `base`; data read in other columns is dropped."""
        if base.stored is self._state.stored:
            return self._state
        with self._lock:
            state = self._state
            if base.stored.equals(state.stored, check_metadata=True):
                self._state = replace(state, stored=base.stored)
            else:
                tail = self._new_tail(base)
                self._state = state.keeping(lambda *_: False, stored=base.stored, tail=tail)
            return self._state

    def _new_tail(self, base: BaseTable) -> WalTail:
        return WalTail(self._context, self._probes, self.log_end, self.name, base)

    def _generation(
        self, state: _State, base: BaseTable, flushed: FlushedGeneration
    ) -> LanceSource:
        newest = self._state if self._state.tail is state.tail else state
        source = newest.generations.get(flushed.path)
        if source is None:
            context = self._context
            folder = generation_folder(self.region_id, flushed.path)
            checksum = flushed.bloom_checksum
            bloom = partial(context.store.get, f"{folder}/{BLOOM_FILTER}")
            source = LanceSource.flushed(
                generation_uri(lance_uri(context.uri), self.region_id, flushed.path),
                region=self.name,
                generation=flushed.generation,
                info=base.info,
                storage_options=context.storage_options,
                session=new_session(),
                bloom=bloom,
                bloom_checksum=checksum,
                names=base.names,
                rows=flushed.rows,
            )
            with self._lock:
                if self._state.tail is state.tail:
                    generations = {**self._state.generations, flushed.path: source}
                    self._state = replace(self._state, generations=generations)
        return source


def values_in_order(manifest: RegionManifest, info: TableInfo) -> dict[str, RegionValue] | None:
    """A region's values by field id, in the order of its spec's fields.

    None for a region without values, of an unknown spec, or whose values do not fit its spec, and
    if the spec reads columns outside of the key, so that a key may be in several regions: such a
    region may have any row, so it is never pruned (protocol rules 1 and 10).
    """
    spec = info.spec(manifest.region_spec_id)
    if spec is None or not spec.reads_only(info.primary_key):
        return None
    stored = manifest.region_values
    if stored is None or set(stored) != set(spec.field_ids):  # the spec may be LanceDB's now
        stored = lancedb_values(spec, manifest.region_id)
    if stored is None and all(f.transform == "unsharded" for f in spec.fields):
        # Native code leaves the values out; there is one region, which all rows are routed to.
        return dict.fromkeys(spec.field_ids, 0)
    if stored is None or set(stored) != set(spec.field_ids):
        return None
    if not all(
        is_value_of(stored[region_field.field_id], type_of(region_field.result_type))
        for region_field in spec.fields
    ):
        return None
    return {name: stored[name] for name in spec.field_ids}


def may_have_twin(
    region_id: UUID, spec_id: int, values: Mapping[str, RegionValue] | None, info: TableInfo
) -> bool:
    """Whether a program that does not know the region would make another with its values: LanceDB
    would, under an id of its own."""
    spec = info.spec(spec_id)
    derived = None if spec is None or values is None else lancedb_id(spec, values)
    return derived is not None and derived != region_id


def _sortable(values: Mapping[str, RegionValue] | None, region_id: UUID) -> tuple[Any, ...]:
    """Sorts regions of one spec by their values, NULL last; those without values by their id."""
    if values is None:
        return (1, region_id.hex)
    return (0, *((value is None, 0 if value is None else value) for value in values.values()))


def gap_error(error: Exception) -> RepairError:
    """The error for a gap, or a missing generation, that a newer base version did not close."""
    return RepairError(
        f"{error}; newer versions did not help: the base table was restored to an older one, or "
        "files of generations or indexes were removed by hand: table.check() names them"
    )
