"""Collects the sources of a query into one immutable snapshot (protocol rules 14 and 15)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Literal, TypeVar

from exec_nodes.keys.keys import KeyBatch
from exec_nodes.sources.lance_source import LanceSource
from memwal_sql.errors import InvalidCallError, MemWalError, RepairError, SourceGoneError
from memwal_sql.read.base_versions import BaseVersions
from memwal_sql.read.closed import ClosedRead, OlderReadError, TableRead, read_closed
from memwal_sql.read.pinned import FixedState, PinnedRegion, PinnedSnapshot, by_filters, by_keys
from memwal_sql.read.recorded import RecordedView, recorded_view
from memwal_sql.read.region import RegionReader, gap_error
from memwal_sql.read.region_reads import RegionReads
from memwal_sql.state.base_table import BaseTable, BaseTracker
from memwal_sql.state.context import TableContext
from memwal_sql.storage.objects.concurrent import map_remote, run_with
from memwal_sql.storage.region.manifest import RegionManifest
from planner.model import LiveTable, Planner, RegionSources, Snapshot
from planner.predicates.expr import Predicate
from planner.regions.pruning import prune

Consistency = Literal["eventual", "manifest", "strong"]
CONSISTENCIES = ("eventual", "manifest", "strong")
# So often a query looks for a state that live rows are of: others may move them on meanwhile.
_ATTEMPTS = 3
T = TypeVar("T")
LiveOf = Callable[[ClosedRead, Callable[[], ClosedRead]], LiveTable | None]


def check_consistency(value: str) -> None:
    """Raise InvalidCallError unless `value` names a consistency level."""
    if value not in CONSISTENCIES:
        raise InvalidCallError(f"consistency must be one of {CONSISTENCIES}, not {value!r}")


class SnapshotCollector:
    """Takes snapshots of one table; keeps data that can't change between them.

    Attributes:
        versions: the base versions that snapshots have.
        regions: reads the regions over a base version.
        registry: the loaded regions.
        remote: whether requests take long, so that several are made at once.
        pinned: whether one version is read, with its recorded regions.
    """

    def __init__(
        self,
        context: TableContext,
        tracker: BaseTracker,
        *,
        pinned: bool,
        fixed: FixedState | None = None,
        live: LiveOf | None = None,
    ) -> None:
        """
        Args:
            pinned: read the tracker's version with its recorded regions, and never a newer one.
            fixed: read this state over that version.
            live: gives the rows in memory of the snapshot that was made of a closed look, if they
                are there; its second argument looks at all regions. Raises OlderReadError if they
                have gone on since.
        """
        self.versions = BaseVersions(context, tracker, self._warm_up, pinned=pinned)
        self.regions = RegionReads(context, tracker, pinned=pinned)
        self.registry, self.remote = self.regions.registry, self.regions.remote
        self.pinned = pinned
        self._context, self._tracker = context, tracker
        self._live = live
        self._fixed = fixed
        self._checked_view: RecordedView | None = None

    def base_for(self, consistency: str) -> BaseTable:
        """The base version for a query: the served one, or the latest if the query reads the
        regions recorded in it."""
        check_consistency(consistency)
        recorded, versions = self.pinned or consistency == "eventual", self.versions
        base = versions.latest() if recorded else versions.served.checked()
        return versions.not_below_watermarks(base)

    @property
    def served(self) -> BaseTable:
        """The version that strong queries read, or a pinned one, without a request."""
        return self._tracker.loaded if self.pinned else self.versions.served.base

    def query(self, consistency: str, take: Callable[[BaseTable], T]) -> T:
        """`over_base` with the version of `base_for`.

        On a remote store `take` is called with the loaded version while a newer one is looked for,
        and again if there is one: errors of the first call do not count.
        """
        if self.pinned or not self.remote:
            return self.versions.over_base(self.base_for(consistency), take)
        recorded = consistency == "eventual"
        first_base = self._tracker.loaded if recorded else self.versions.served.base
        taken: list[T] = []

        def take_loaded() -> None:
            with suppress(Exception):  # raised below, unless due to an older version
                taken.append(take(first_base))

        base = run_with(True, partial(self.base_for, consistency), take_loaded)
        return taken[0] if taken and base is first_base else self.versions.over_base(base, take)

    def snapshot(
        self,
        base: BaseTable,
        consistency: str,
        filters: Sequence[Predicate] = (),
        planner: Planner | None = None,
    ) -> Snapshot:
        """A consistent state of the table over a base version, without the regions that `filters`
        rule out.

        `"eventual"` reads the regions recorded in the MemWAL index, `"manifest"` the region
        manifests, `"strong"` the unflushed rows of every writer too. On a remote store the first
        query opens the plan that `planner` makes without unflushed rows while it reads the logs.
        """
        if self.pinned or consistency == "eventual":
            snapshot = self._recorded(base, filters)
        else:
            strong = consistency == "strong"
            snapshot = self._current(base, filters, planner, strong=strong)
        missing = None if self.pinned else partial(self._missing, snapshot, consistency, filters)
        return replace(snapshot, indexes=base.indexes.infos, missing=missing)

    def of_keys(self, base: BaseTable, keys: KeyBatch) -> Snapshot:
        """The state of a pinned version, for some keys."""
        if self._fixed is not None:
            return self._fixed.snapshot(base, by_keys(base.info, keys))
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
            now = self.versions.over_base(
                self.versions.not_below_watermarks(self.versions.catch_up()),
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
        return self.versions.over_latest(lambda base: self.snapshot(base, consistency, filters))

    def _warm_up(self, base: BaseTable) -> None:
        from memwal_sql.read.warm_up import warm_up

        warm_up(self._current(base, (), strong=True))

    @property
    def reads_base_alone(self) -> bool:
        """Whether the version read has no record of the regions' states."""
        base = self._tracker.loaded
        return self._fixed is None and recorded_view(self._context, base) is None

    def pin(self, consistency: str, filters: Sequence[Predicate] = ()) -> PinnedSnapshot:
        """A description of the snapshot that `collect` would read, from which other processes read
        the same rows.

        Buffered rows of this process's own writers are made durable for it.
        """
        check_consistency(consistency)
        return self.versions.over_latest(lambda base: self._pin(base, consistency, filters))

    @property
    def takes_a_while(self) -> bool:
        """Whether the store is remote and no region is loaded yet."""
        return self.remote and not self.registry

    def regions_to_merge(self) -> list[RegionReader]:
        """Every region. Raises RepairError if two have the same values, as the region merged last
        would win."""

        def mergeable(base: BaseTable) -> list[RegionReader]:
            regions = self.registry.regions(base)
            self.registry.check_twins(base)
            return regions

        return self.versions.over_latest(mergeable)

    def _current(
        self,
        base: BaseTable,
        filters: Sequence[Predicate],
        planner: Planner | None = None,
        *,
        strong: bool,
    ) -> Snapshot:
        if not strong:
            read = self.regions.read(base, filters, strong=False, planner=planner)
            return self.regions.snapshot_of(read)
        for _ in range(_ATTEMPTS):
            closed = self._closed(base, filters, planner)
            if self._live is None:
                break
            with suppress(OlderReadError):
                live = self._live(closed, partial(self._closed, base, ()))
                return replace(closed.snapshot, live=live)
        return closed.snapshot

    def _closed(
        self, base: BaseTable, filters: Sequence[Predicate], planner: Planner | None = None
    ) -> ClosedRead:
        regions = self.regions
        (read,) = read_closed(lambda: (regions.read(base, filters, strong=True, planner=planner),))
        return ClosedRead(read, regions.snapshot_of(read))

    def _pin_logs(self, base: BaseTable, filters: Sequence[Predicate]) -> PinnedSnapshot:
        """The regions with the ends of their logs. Other processes find rows only there."""

        def read_all() -> tuple[TableRead]:
            before = self.regions.seen()
            regions = self.registry.live(base, self.registry.regions(base))
            chosen = prune(filters, regions, base.info.region_specs, base.info.schema)
            for region in chosen:
                region.complete_log()
            since = {region: before.get(region, region.seen) for region in chosen}
            open_of = self._context.incarnation
            (table,) = self.regions.read_all(base, chosen, open_of=open_of, since=since)
            return (replace(table, pruned=len(regions) - len(chosen), listed=regions),)

        (table,) = read_closed(read_all)
        self.regions.with_sources(base, table.regions)  # raises if this base version is too old
        pinned = []
        for read in table.regions:
            manifest, end = read.unflushed.manifest, read.unflushed.tail.end + 1
            pinned.append(PinnedRegion(manifest, read.reader.whole_end(manifest, end)))
        return PinnedSnapshot(base.version, tuple(pinned), table.pruned)

    def _recorded(self, base: BaseTable, filters: Sequence[Predicate]) -> Snapshot:
        if self._fixed is not None:
            return self._fixed.snapshot(base, by_filters(base.info, filters))
        view = recorded_view(self._context, base)
        if view is None:  # never recorded, or lost to a merge (protocol rule 23)
            if self.pinned:
                return Snapshot(base.info, base.source, (), 0)
            return self._current(base, filters, strong=False)
        regions = tuple(
            RegionSources(r.region_id, r.name, r.spec_id, r.values, r.sources(base, manifest, ()))
            for r, manifest in self._chosen(view, base, filters)
        )
        return Snapshot(base.info, base.source, regions, len(view.regions) - len(regions))

    def _chosen(
        self, view: RecordedView, base: BaseTable, filters: Sequence[Predicate]
    ) -> list[tuple[RegionReader, RegionManifest]]:
        """The recorded regions that the filters leave, in a stable order."""
        if self._checked_view is not view:
            view.check_twins(self._context.uri, base)
            self.registry.pass_over(view.folders)
            self._checked_view = view
        manifests = [region.manifest for region in view.chosen(filters)]
        regions = [(self.registry.reader(manifest, base), manifest) for manifest in manifests]
        return sorted(regions, key=lambda pair: pair[0].order)

    def _pin(
        self, base: BaseTable, consistency: str, filters: Sequence[Predicate]
    ) -> PinnedSnapshot:
        if self._fixed is not None:
            return self._fixed.pin()
        view = None
        if self.pinned or consistency == "eventual":
            view = recorded_view(self._context, base)
            if view is None and self.pinned:
                return PinnedSnapshot(base.version, ())
        if view is None and consistency == "strong":
            return self._pin_logs(base, filters)
        chosen: Sequence[tuple[RegionReader, RegionManifest | None]]
        if view is None:
            regions = self.registry.live(base, self.registry.regions(base))
            live = prune(filters, regions, base.info.region_specs, base.info.schema)
            chosen, every = [(region, None) for region in live], len(regions)
        else:
            chosen, every = self._chosen(view, base, filters), len(view.regions)

        def pin(pair: tuple[RegionReader, RegionManifest | None]) -> PinnedRegion:
            region, manifest = pair[0], pair[1] or pair[0].refresh()
            end = manifest.replay_after_wal_entry_position + 1
            region.sources(base, manifest, ())  # raises if this base version is too old
            return PinnedRegion(manifest, end)

        pinned = tuple(map_remote(self.remote, pin, chosen))
        return PinnedSnapshot(base.version, pinned, every - len(chosen))
