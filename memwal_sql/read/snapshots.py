"""Collects the sources of a query into one immutable snapshot (protocol rules 14 and 15)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Literal, TypeVar
from uuid import UUID

from exec_nodes.keys.keys import KeyBatch
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.sources.source import Source
from memwal_sql.errors import (
    InvalidCallError,
    MemWalError,
    NotFoundError,
    RepairError,
    SourceGoneError,
    TableReplacedError,
)
from memwal_sql.life_log import deferred_logs, life_log
from memwal_sql.read.closed import Place, RegionRead, TableRead, read_closed
from memwal_sql.read.index_lag import IndexGaps
from memwal_sql.read.pinned import PinnedRegion, PinnedSnapshot, PinnedTable
from memwal_sql.read.recorded import (
    RecordedValues,
    RecordedView,
    recorded_regions,
)
from memwal_sql.read.region import (
    RegionReader,
    StaleBaseError,
    Unflushed,
    gap_error,
)
from memwal_sql.read.region_probe import run_probes
from memwal_sql.read.registry import RegionRegistry
from memwal_sql.read.served_version import ServedVersion
from memwal_sql.read.twins import check_recorded
from memwal_sql.read.warm_up import warm_up
from memwal_sql.state.base_table import BaseTable, BaseTracker
from memwal_sql.state.context import TableContext
from memwal_sql.state.tail import Tail
from memwal_sql.storage.base.merge_token import MergeProgress
from memwal_sql.storage.objects.concurrent import map_remote, run_with
from memwal_sql.storage.records.gc_watermarks import check_watermarks, read_watermarks
from planner.model import RegionSources, Snapshot
from planner.predicates.expr import Predicate
from planner.regions.pruning import prune

_log = life_log(__name__)

Consistency = Literal["eventual", "manifest", "strong"]
Since = Mapping[RegionReader, int]
"""WAL positions by region; 0 for others."""
CONSISTENCIES = ("eventual", "manifest", "strong")
ATTEMPTS = 8
# Readers move on from one version to the next, and back to the served one.
_MOST_CHECKED = 4
T = TypeVar("T")
R = TypeVar("R")


def check_consistency(value: str) -> None:
    """Raise InvalidCallError unless `value` names a consistency level."""
    if value not in CONSISTENCIES:
        raise InvalidCallError(f"consistency must be one of {CONSISTENCIES}, not {value!r}")


class SnapshotCollector:
    """Takes snapshots of one table; keeps data that can't change between them.

    Attributes:
        pinned: whether one version is read, with its recorded regions.
        registry: the loaded regions.
    """

    def __init__(
        self,
        context: TableContext,
        tracker: BaseTracker,
        *,
        pinned: bool,
        checkpoint: PinnedSnapshot | None = None,
    ) -> None:
        """
        Args:
            pinned: read the tracker's version with its recorded regions, and never a newer one.
            checkpoint: read these regions of a checkpoint over that version.
        """
        self._context = context
        self._tracker = tracker
        self.pinned = pinned
        self._checkpoint = checkpoint
        self.registry = RegionRegistry(context, tracker, pinned=pinned)
        self._served = ServedVersion(context, tracker, self._warm_up)
        self._checkpoint_regions: tuple[RegionSources, ...] | None = None
        self._view: tuple[BaseTable, RecordedView] | None = None
        self._checked: OrderedDict[str, MergeProgress] = OrderedDict()
        self._lock = Lock()

    def base_for(self, consistency: str) -> BaseTable:
        """The base version for a query: the served one, or the latest if the query reads the
        regions recorded in it."""
        check_consistency(consistency)
        recorded = self.pinned or consistency == "eventual"
        return self.not_below_watermarks(self.latest() if recorded else self._served.checked())

    def query(self, consistency: str, take: Callable[[BaseTable], T]) -> T:
        """`over_base` with the version of `base_for`.

        On a remote store `take` is called with the loaded version while a newer one is looked for,
        and again if there is one: errors of the first call do not count.
        """
        if self.pinned or not self._context.store.remote:
            return self.over_base(self.base_for(consistency), take)
        recorded = consistency == "eventual"
        first_base = self._tracker.loaded if recorded else self._served.base
        taken: list[T] = []

        def take_loaded() -> None:
            with suppress(Exception):  # raised below, unless due to an older version
                taken.append(take(first_base))

        base = run_with(True, partial(self.base_for, consistency), take_loaded)
        return taken[0] if taken and base is first_base else self.over_base(base, take)

    def over_base(self, base: BaseTable, take: Callable[[BaseTable], T]) -> T:
        """The result of `take`, called with a base version, and again with newer ones if the
        regions are past it, or files of it or of a generation are gone: they were merged and
        collected meanwhile, and are never skipped (protocol rule 14). `catch_up` raises if another
        table is there now. All reads use this loop.

        Raises RepairError if that keeps happening, and SourceGoneError if a pinned version lacks
        files.
        """
        for _ in range(ATTEMPTS):
            try:
                with deferred_logs():
                    return take(base)
            except (StaleBaseError, NotFoundError, SourceGoneError) as error:
                gap = error
                if self.pinned:
                    break
                _log.debug(
                    "%s: version %d is taken again, as the regions are past it: %s",
                    self._context.uri,
                    base.version,
                    type(error).__name__,
                )
                base = self.not_below_watermarks(self.catch_up())
        self.check_watermarks(base)
        raise gap if self.pinned and isinstance(gap, SourceGoneError) else gap_error(gap)

    def snapshot(
        self, base: BaseTable, consistency: str, filters: Sequence[Predicate] = ()
    ) -> Snapshot:
        """A consistent state of the table over a base version, without the regions that `filters`
        rule out.

        `"eventual"` reads the regions recorded in the MemWAL index, `"manifest"` the region
        manifests, `"strong"` the unflushed rows of every writer too.
        """
        if self.pinned or consistency == "eventual":
            snapshot = self._recorded(base, filters)
        else:
            snapshot = self._current(base, filters, strong=consistency == "strong")
        missing = None if self.pinned else partial(self._missing, snapshot, consistency, filters)
        return replace(snapshot, indexes=base.indexes.infos, missing=missing)

    def of_keys(self, base: BaseTable, _: KeyBatch) -> Snapshot:
        """The state of a pinned version, for some keys."""
        return self.snapshot(base, "eventual")

    def _missing(
        self,
        read: Snapshot,
        consistency: str,
        filters: Sequence[Predicate],
        error: SourceGoneError,
    ) -> MemWalError:
        """The error for missing files of a snapshot: a RepairError if the newest snapshot reads the
        same files, otherwise the error itself, as they were merged and collected."""
        try:
            now = self.over_base(
                self.not_below_watermarks(self.catch_up()),
                lambda base: self.snapshot(base, consistency, filters),
            )
        except RepairError as damage:
            return damage
        needed = {source.identity for source in now.sources}
        files = [source for source in read.sources if isinstance(source, LanceSource)]
        return gap_error(error) if all(source.identity in needed for source in files) else error

    def collect(self, consistency: str, filters: Sequence[Predicate] = ()) -> Snapshot:
        """The `snapshot` over the latest base version."""
        check_consistency(consistency)
        return self._over_latest(lambda base: self.snapshot(base, consistency, filters))

    def catch_up(self) -> BaseTable:
        """The latest base version, which is served from now on."""
        return self._tracker.loaded if self.pinned else self._served.catch_up()

    def _warm_up(self, base: BaseTable) -> None:
        warm_up(self._current(base, (), strong=True))

    def latest(self) -> BaseTable:
        """The latest base version; the own version of a pinned handle."""
        return self._tracker.loaded if self.pinned else self._tracker.latest()

    @property
    def reads_base_alone(self) -> bool:
        """Whether the version read has no record of the regions' states."""
        no_checkpoint = self._checkpoint is None
        return no_checkpoint and recorded_regions(self._context, self._tracker.loaded) is None

    def pin(self, consistency: str, filters: Sequence[Predicate] = ()) -> PinnedSnapshot:
        """A description of the snapshot that `collect` would read, from which other processes read
        the same rows.

        Buffered rows of this process's own writers are made durable for it.
        """
        check_consistency(consistency)
        return self._over_latest(lambda base: self._pin(base, consistency, filters))

    def _over_latest(self, take: Callable[[BaseTable], T]) -> T:
        return self.over_base(self.not_below_watermarks(self.latest()), take)

    def check_watermarks(self, base: BaseTable) -> BaseTable:
        """`base`, or a newer version in its place if what it lacks was merged and collected
        meanwhile. Raises TableReplacedError if a gap comes from a restore below the collected
        generations."""
        if self.pinned:
            return base
        store = self._context.store
        watermarks = read_watermarks(store)
        try:
            check_watermarks(store, base.details.merged_generations, watermarks)
        except TableReplacedError:
            base = self._tracker.reload()  # versions between may have been cleaned up
            check_watermarks(store, base.details.merged_generations, watermarks)
        return base

    def not_below_watermarks(self, base: BaseTable) -> BaseTable:
        """`base`, or a newer version in its place, whose merge progress is not below the collected
        generations: rows are lost there, whatever is read (protocol rule 22). This is checked once
        per version, and only if progress has not grown since the previous one.

        Raises TableReplacedError.
        """
        if self.pinned or base.found.etag in self._checked:
            return base
        with self._lock:
            before = next(reversed(self._checked.values()), None)
        if before is None or not _has_grown(before, base.details.merged_generations):
            base = self.check_watermarks(base)
        with self._lock:
            self._checked[base.etag] = base.details.merged_generations
            if len(self._checked) > _MOST_CHECKED:
                self._checked.popitem(last=False)
        return base

    @property
    def takes_a_while(self) -> bool:
        """Whether the store is remote and no region is loaded yet."""
        return self._context.store.remote and not self.registry

    def regions_to_merge(self) -> list[RegionReader]:
        """Every region. Raises RepairError if two have the same values, as the region merged last
        would win."""

        def mergeable(base: BaseTable) -> list[RegionReader]:
            regions = self.registry.regions(base)
            self.registry.check_twins(base)
            return regions

        return self._over_latest(mergeable)

    def read(
        self,
        base: BaseTable,
        filters: Sequence[Predicate],
        *,
        strong: bool,
        since: Since | None = None,
    ) -> TableRead:
        """The regions that the filters leave, with their unflushed rows if it is `strong`; to be
        closed, alone or, with what was `seen` of all tables before, among others, and then given to
        `snapshot_of`. They have the marks of all transactions `since` then, or else since the
        previous read."""
        registry, info = self.registry, base.info
        reads: dict[RegionReader, Unflushed] = {}

        def read_chosen(
            regions: list[RegionReader], since: Since | None
        ) -> tuple[RegionReader, ...]:
            chosen = prune(filters, regions, info.region_specs, info.schema)
            new = [reader for reader in chosen if reader not in reads]
            unflushed = self._read_regions(base, new, strong=strong, since=since)
            reads.update(zip(new, unflushed, strict=True))
            return chosen

        def choose(recorded: list[RecordedValues]) -> tuple[RecordedValues, ...]:
            return prune(filters, recorded, info.region_specs, info.schema)

        # No answer about a region depends on the existence of others.
        regions, known_regions = registry.pinned_by(base, filters), len(registry)
        are_all, listed = regions is not None, list[RegionReader]()
        if regions is None:
            if since is not None or (self._context.store.remote and registry):
                readers = registry.live(base, registry.loaded())
                run_with(
                    self._context.store.remote,
                    partial(registry.find_new_regions, base, choose),
                    partial(read_chosen, readers, since),
                )
                since = {}  # regions found now may be newer than the reads of the others
            else:
                before = self.seen()
                registry.find_new_regions(base, choose)
                since = {**self.seen(), **before}
            listed = regions = registry.live(base, registry.loaded())
            known_regions = len(regions)
        chosen = read_chosen(regions, since)
        pruned = known_regions + registry.passed_over - len(chosen)
        if pruned:
            every = pruned + len(chosen)
            _log.debug("%s: %d of %d regions pruned", self._context.uri, pruned, every)
        region_reads = [RegionRead(reader, reads[reader]) for reader in chosen]
        open_of = None if are_all else self._context.incarnation
        return TableRead(base, region_reads, pruned, open_of, listed)

    def seen(self) -> Since:
        """The WAL positions up to which earlier reads have taken in the regions known by now. To be
        asked before any region of a look is read, as reads of other threads go on."""
        return {reader: reader.seen for reader in self.registry.loaded()}

    def snapshot_of(self, read: TableRead, tails: Mapping[Place, Tail]) -> Snapshot:
        """The snapshot of a read, with other tails where the read was closed."""
        base = read.base
        sources_of = []
        for region in read.regions:
            reader, unflushed = region.reader, region.unflushed
            tail = tails[reader.place] if tails else unflushed.tail
            sources = reader.sources(base, unflushed.manifest, tail.memtables)
            sources_of.append((reader, sources))
        self.registry.check_values(base, sources_of)
        collected = tuple(
            RegionSources(reader.region_id, reader.name, reader.spec_id, reader.values, sources)
            for reader, sources in sources_of
        )
        gaps = IndexGaps(self._context, base, [reader for reader, _ in sources_of])
        return Snapshot(base.info, base.source, collected, read.pruned, gaps=gaps)

    @property
    def incarnation(self) -> UUID:
        """Identifies the table, even among those that were at its location."""
        return self._context.incarnation

    @property
    def remote(self) -> bool:
        """Whether requests take long, so that several are made at once."""
        return self._context.store.remote

    @property
    def uri(self) -> str:
        """The location of the table."""
        return self._context.uri

    def _current(self, base: BaseTable, filters: Sequence[Predicate], *, strong: bool) -> Snapshot:
        if not strong:
            return self.snapshot_of(self.read(base, filters, strong=False), {})
        (read,), tails = read_closed(lambda: (self.read(base, filters, strong=True),))
        return self.snapshot_of(read, tails)

    def sources(
        self,
        base: BaseTable,
        regions: Sequence[RegionReader],
        meanwhile: Callable[[list[Source]], None] | None = None,
    ) -> list[tuple[Source, ...]]:
        """The sources of each region, with its unflushed rows. On a remote store `meanwhile` is
        called with the sources that are in memory."""
        if len(regions) == 1:  # nothing to close
            (unflushed,) = self._read_regions(base, regions, meanwhile, strong=True)
            sources = [regions[0].sources(base, unflushed.manifest, unflushed.tail.memtables)]
            self._check_values(base, regions, sources)
            return sources
        return self.routed_sources(base, lambda: (regions, True), meanwhile)

    def routed_sources(
        self,
        base: BaseTable,
        route: Callable[[], tuple[Sequence[RegionReader], bool]],
        meanwhile: Callable[[list[Source]], None] | None = None,
    ) -> list[tuple[Source, ...]]:
        """As `sources`, of the regions that `route` gives. It also says whether these are all; if
        not, it is called again where one may have been made meanwhile."""

        def read() -> tuple[TableRead]:
            regions, are_all = route()
            if are_all:
                return self._read_all(base, regions, meanwhile)
            before = {region: region.seen for region in regions}
            regions, are_all = route()
            since = {region: before.get(region, region.seen) for region in regions}
            return self._read_all(base, regions, meanwhile, self.incarnation, since)

        (table,), tails = read_closed(read)
        sources = [_sources(region, base, tails) for region in table.regions]
        self._check_values(base, [region.reader for region in table.regions], sources)
        return sources

    def _check_values(
        self,
        base: BaseTable,
        regions: Sequence[RegionReader],
        sources: Sequence[tuple[Source, ...]],
    ) -> None:
        if None in [region.values for region in regions]:
            self.registry.check_values(base, zip(regions, sources, strict=True))

    def _read_all(
        self,
        base: BaseTable,
        regions: Sequence[RegionReader],
        meanwhile: Callable[[list[Source]], None] | None = None,
        open_of: UUID | None = None,
        since: Since | None = None,
    ) -> tuple[TableRead]:
        reads = self._read_regions(base, regions, meanwhile, strong=True, since=since)
        pairs = zip(regions, reads, strict=True)
        return (TableRead(base, [RegionRead(*pair) for pair in pairs], open_of=open_of),)

    def _read_regions(
        self,
        base: BaseTable,
        regions: Sequence[RegionReader],
        meanwhile: Callable[[list[Source]], None] | None = None,
        *,
        strong: bool,
        since: Since | None = None,
    ) -> list[Unflushed]:
        """The probes of all regions are asked together; a region with news then continues on its
        own."""
        seen = [region.seen if since is None else since.get(region, 0) for region in regions]
        reads = [
            region.begin_read(base, strong=strong, since=start)
            for region, start in zip(regions, seen, strict=True)
        ]
        pairs = zip(regions, reads, strict=True)
        if not self._context.store.remote:
            return [region.end_read(pending) for region, pending in pairs]
        ask_regions = partial(run_probes, [pending.probe for pending in reads])
        if meanwhile is None:
            ask_regions()
        else:
            sources_known = [source for pending in reads for source in pending.sources_in_memory]
            run_with(True, ask_regions, partial(meanwhile, sources_known))
        return map_remote(True, lambda pair: pair[0].end_read(pair[1]), pairs)

    def _pin_logs(self, base: BaseTable, filters: Sequence[Predicate]) -> PinnedSnapshot:
        """The regions with the ends of their logs. Other processes find rows only there."""

        def read_all() -> tuple[TableRead]:
            before = self.seen()
            regions = self.registry.live(base, self.registry.regions(base))
            chosen = prune(filters, regions, base.info.region_specs, base.info.schema)
            for region in chosen:
                region.complete_log()
            since = {region: before.get(region, region.seen) for region in chosen}
            (table,) = self._read_all(base, chosen, open_of=self.incarnation, since=since)
            return (replace(table, pruned=len(regions) - len(chosen), listed=regions),)

        (table,), tails = read_closed(read_all)
        pinned = []
        for read in table.regions:
            _sources(read, base, tails)  # raises if this base version is too old
            tail = tails[read.reader.place] if tails else read.unflushed.tail
            manifest = read.unflushed.manifest
            pinned.append(PinnedRegion(manifest, read.reader.whole_end(manifest, tail.end + 1)))
        return PinnedSnapshot(base.version, tuple(pinned), table.pruned)

    def _recorded(self, base: BaseTable, filters: Sequence[Predicate]) -> Snapshot:
        if self._checkpoint is not None:
            return self._of_checkpoint(self._checkpoint, base, filters)
        manifests = recorded_regions(self._context, base)
        if manifests is None:  # never recorded, or lost to a merge (protocol rule 23)
            if self.pinned:
                return Snapshot(base.info, base.source, (), 0)
            return self._current(base, filters, strong=False)
        cached_view = self._view
        if cached_view is None or cached_view[0] is not base:
            pairs = [(self.registry.reader(manifest, base), manifest) for manifest in manifests]
            check_recorded(self._context.uri, pairs, base)
            self._view = cached_view = base, RecordedView(pairs)
        view = cached_view[1]
        chosen = view.chosen(filters, base.info)
        regions = tuple(
            RegionSources(
                r.region_id, r.name, r.spec_id, r.values, r.sources(base, view.manifest(r), ())
            )
            for r in chosen
        )
        return Snapshot(base.info, base.source, regions, len(view.readers) - len(chosen))

    def _of_checkpoint(
        self, checkpoint: PinnedSnapshot, base: BaseTable, filters: Sequence[Predicate]
    ) -> Snapshot:
        with self._lock:
            if self._checkpoint_regions is None:
                self._checkpoint_regions = PinnedTable(self._context).snapshot(checkpoint).regions
            regions = self._checkpoint_regions
        chosen = prune(filters, regions, base.info.region_specs, base.info.schema)
        return Snapshot(base.info, base.source, chosen, len(regions) - len(chosen))

    def _pin(
        self, base: BaseTable, consistency: str, filters: Sequence[Predicate]
    ) -> PinnedSnapshot:
        if self._checkpoint is not None:
            return self._checkpoint
        recorded = None
        if self.pinned or consistency == "eventual":
            recorded = recorded_regions(self._context, base)
            if recorded is None and self.pinned:
                return PinnedSnapshot(base.version, ())
        if recorded is None and consistency == "strong":
            return self._pin_logs(base, filters)
        registry = self.registry
        if recorded is None:
            regions = [
                (region, region.manifest) for region in registry.live(base, registry.regions(base))
            ]
        else:
            regions = [(registry.reader(manifest, base), manifest) for manifest in recorded]
            check_recorded(self._context.uri, regions, base)
            regions.sort(key=lambda pair: pair[0].order)
        manifests = {region.region_id: manifest for region, manifest in regions}
        readers = [region for region, _ in regions]
        chosen = prune(filters, readers, base.info.region_specs, base.info.schema)

        def pin(region: RegionReader) -> PinnedRegion:
            manifest = manifests[region.region_id] if recorded else region.refresh()
            end = manifest.replay_after_wal_entry_position + 1
            region.sources(base, manifest, ())  # raises if this base version is too old
            return PinnedRegion(manifest, end)

        pinned = tuple(map_remote(self._context.store.remote, pin, chosen))
        return PinnedSnapshot(base.version, pinned, len(readers) - len(chosen))


def _sources(
    region: RegionRead, base: BaseTable, tails: Mapping[Place, Tail]
) -> tuple[Source, ...]:
    reader, unflushed = region.reader, region.unflushed
    tail = tails[reader.place] if tails else unflushed.tail
    return reader.sources(base, unflushed.manifest, tail.memtables)


def _has_grown(before: MergeProgress, now: MergeProgress) -> bool:
    return all(now.get(shard, 0) >= mark for shard, mark in before.items())
