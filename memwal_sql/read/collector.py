"""Collects the sources of a query into one immutable snapshot (protocol rules 14 and 15)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Lock
from typing import Literal, TypeVar
from uuid import UUID

from memwal_sql.errors import InvalidCallError, NotFoundError
from memwal_sql.read.base import BaseTable, BaseTracker
from memwal_sql.read.context import TableContext
from memwal_sql.read.index_gaps import IndexGaps
from memwal_sql.read.pinned import PinnedRegion, PinnedSnapshot, PinnedTable
from memwal_sql.read.recorded import recorded_regions
from memwal_sql.read.recorded_view import RecordedView
from memwal_sql.read.region import RegionReader, StaleBaseError, gap_error
from memwal_sql.read.rehearsals import Rehearsals
from memwal_sql.read.served_base import ServedBase
from memwal_sql.storage.floors import check_floors
from memwal_sql.storage.paths import MEM_WAL_FOLDER, region_of
from memwal_sql.storage.region_manifest import RegionManifest, RegionManifests
from memwal_sql.storage.region_values import value_types
from planner.model import RegionSources, Snapshot
from planner.regions.pruning import prune
from planner.regions.values import RegionValue

Consistency = Literal["eventual", "manifest", "strong"]
CONSISTENCIES = ("eventual", "manifest", "strong")
ATTEMPTS = 8
_PARALLEL_REQUESTS = 32
T = TypeVar("T")
R = TypeVar("R")


def check_consistency(value: str) -> None:
    """Raise InvalidCallError unless `value` names a consistency level."""
    if value not in CONSISTENCIES:
        raise InvalidCallError(f"consistency must be one of {CONSISTENCIES}, not {value!r}")


class SnapshotCollector:
    """Takes snapshots of one table; keeps what can't change between them."""

    def __init__(
        self,
        context: TableContext,
        tracker: BaseTracker,
        *,
        pinned: bool,
        held: PinnedSnapshot | None = None,
    ) -> None:
        """
        Args:
            pinned: read the tracker's version as it was recorded, and never a newer one.
            held: read these regions over that version; what a checkpoint holds.
        """
        self._context = context
        self._tracker = tracker
        self._pinned = pinned
        self._held = held
        self._served = ServedBase(context, tracker)
        self.rehearsals = Rehearsals()
        self._held_regions: tuple[RegionSources, ...] | None = None
        self._regions: dict[UUID, RegionReader] = {}
        self._by_values: dict[tuple[int, tuple[RegionValue, ...]], RegionReader] = {}
        self._without_values: list[RegionReader] = []
        self._view: tuple[BaseTable, RecordedView] | None = None
        self._lock = Lock()

    def collect(
        self, consistency: str, filters: Sequence[str] = (), *, served: bool = False
    ) -> Snapshot:
        """One consistent state of the table, without the regions that `filters` rule out.

        `"eventual"` reads the regions recorded in the MemWAL index, `"manifest"` the region
        manifests, `"strong"` the unflushed rows of every writer too. These two begin with the base
        version that is `served` to queries, or with the newest.
        """
        check_consistency(consistency)
        recorded = self._pinned or consistency == "eventual"

        def collect(base: BaseTable) -> Snapshot:
            if recorded:
                found = self._recorded(base, filters)
            else:
                found = self._current(base, filters, strong=consistency == "strong")
            return replace(found, indexes=base.indexes.infos)

        return self._over_base(self.served if served and not recorded else self.newest, collect)

    def served(self) -> BaseTable:
        """The base version that queries of now begin with; its rows are those of the newest."""
        if self._pinned:
            return self._tracker.current
        return self._served.latest(self._rehearse if self.rehearsals else None)

    def catch_up(self) -> BaseTable:
        """The newest base version, which queries begin with from now on."""
        return self._tracker.current if self._pinned else self._served.catch_up()

    def _rehearse(self, base: BaseTable) -> None:
        found = self._current(base, (), strong=True)
        self.rehearsals.run(replace(found, indexes=base.indexes.infos))

    def newest(self) -> BaseTable:
        """The newest base version; of a pinned handle its own."""
        return self._tracker.current if self._pinned else self._tracker.latest()

    @property
    def reads_base_alone(self) -> bool:
        """Whether the version read has no record of the regions' states."""
        unheld = self._held is None
        return unheld and recorded_regions(self._context, self._tracker.current) is None

    def pin(self, consistency: str, filters: Sequence[str] = ()) -> PinnedSnapshot:
        """What `collect` would read, by name, so that other processes can read the same.

        Buffered rows of this process's own writers are made durable for it.
        """
        check_consistency(consistency)
        return self._over_base(self.newest, lambda base: self._pin(base, consistency, filters))

    def _over_base(self, begin: Callable[[], BaseTable], take: Callable[[BaseTable], T]) -> T:
        """Call `take` with a base version, and with newer ones where the regions are past it, or
        gone: another table may be there now, which `catch_up` says."""
        base = begin()
        for _ in range(ATTEMPTS):
            try:
                return take(base)
            except (StaleBaseError, NotFoundError) as error:
                gap = error
                if self._pinned:
                    break
                base = self.catch_up()
        self.check_floors(base)
        raise gap_error(gap)

    def check_floors(self, base: BaseTable) -> None:
        """Raise TableReplacedError when a gap comes from a restore to below what was collected."""
        if not self._pinned:
            check_floors(self._context.store, base.details.merged_generations)

    def region_of(
        self, base: BaseTable, spec_id: int, values: tuple[RegionValue, ...]
    ) -> RegionReader | None:
        """The region with these values; regions are listed only while it is not known."""
        region = self._by_values.get((spec_id, values))
        if region is None:
            self.regions(base)
            region = self._by_values.get((spec_id, values))
        return region

    def manifest_of(
        self, base: BaseTable, spec_id: int, values: Mapping[str, RegionValue]
    ) -> RegionManifest | None:
        """The manifest of the region with these values, if there is one; what writers ask.

        Raises InvalidCallError where a region's values are not known: it may be the one, and
        a second region for the same keys would hide rows (protocol rules 10 and 11).
        """
        region = self.region_of(base, spec_id, tuple(values.values()))
        if self._without_values:
            unknown = sorted(str(one.region_id) for one in self._without_values)
            raise InvalidCallError(
                f"{self._context.uri} has regions whose values native code has not written down: "
                f"{unknown}. Rows can't be routed beside them: go on writing with native code, or "
                "merge them all, remove their folders, and write with this package only"
            )
        return None if region is None else region.refresh()

    def regions_without_values(self, base: BaseTable) -> list[RegionReader]:
        """Regions given by hand, or made by native code: any key may be in them.

        They are listed anew when the table has such regions, or no spec to derive them from.
        """
        if self._without_values or not base.info.region_specs:
            self.regions(base)
        return list(self._without_values)

    def regions(self, base: BaseTable) -> list[RegionReader]:
        """Every region of the table, after looking for new ones, in a stable order."""
        folders = self._context.store.list_folders(MEM_WAL_FOLDER)
        listed = (region_of(folder) for folder in folders)
        new = [one for one in listed if one is not None and one not in self._regions]
        if new and not self._pinned:
            self._tracker.verified()  # they may be those of a table that was made anew
        for manifest in self.parallel(self._first_look, new):
            if manifest is not None:
                self._reader(manifest, base)
        found = list(self._regions.values())  # at once, as other threads may add to it
        found.sort(key=lambda region: region.order)
        return found

    def _current(self, base: BaseTable, filters: Sequence[str], *, strong: bool) -> Snapshot:
        regions = self.regions(base)
        kept = prune(filters, regions, base.info.region_specs, base.info.schema)

        def sources(region: RegionReader) -> RegionSources:
            if strong:
                found = region.strong_sources(base)
            else:
                found = region.sources(base, region.refresh(), ())
            return RegionSources(
                region.region_id, region.name, region.spec_id, region.values, found
            )

        collected = tuple(self.parallel(sources, kept))
        gaps = IndexGaps(self._context, base, kept)
        pruned = len(regions) - len(kept)
        return Snapshot(base.info, base.source, collected, pruned, gaps=gaps)

    def _recorded(self, base: BaseTable, filters: Sequence[str]) -> Snapshot:
        if self._held is not None:
            return self._of_checkpoint(self._held, base, filters)
        manifests = recorded_regions(self._context, base)
        if manifests is None:  # never recorded, or lost to a merge (protocol rule 23)
            if self._pinned:
                return Snapshot(base.info, base.source, (), 0)
            return self._current(base, filters, strong=False)
        known = self._view
        if known is None or known[0] is not base:
            pairs = [(self._reader(manifest, base), manifest) for manifest in manifests]
            self._view = known = base, RecordedView(pairs)
        view = known[1]
        kept = view.kept(filters, base.info)
        regions = tuple(
            RegionSources(
                r.region_id, r.name, r.spec_id, r.values, r.sources(base, view.manifest(r), ())
            )
            for r in kept
        )
        return Snapshot(base.info, base.source, regions, len(view.readers) - len(kept))

    def _of_checkpoint(
        self, held: PinnedSnapshot, base: BaseTable, filters: Sequence[str]
    ) -> Snapshot:
        with self._lock:
            if self._held_regions is None:
                self._held_regions = PinnedTable(self._context).snapshot(held).regions
            regions = self._held_regions
        kept = prune(filters, regions, base.info.region_specs, base.info.schema)
        return Snapshot(base.info, base.source, kept, len(regions) - len(kept))

    def _pin(self, base: BaseTable, consistency: str, filters: Sequence[str]) -> PinnedSnapshot:
        if self._held is not None:
            return self._held
        recorded = None
        if self._pinned or consistency == "eventual":
            recorded = recorded_regions(self._context, base)
            if recorded is None and self._pinned:
                return PinnedSnapshot(base.version, ())
        if recorded is None:
            regions = [(region, region.manifest) for region in self.regions(base)]
        else:
            regions = [(self._reader(manifest, base), manifest) for manifest in recorded]
            regions.sort(key=lambda pair: pair[0].order)
        manifests = {region.region_id: manifest for region, manifest in regions}
        readers = [region for region, _ in regions]
        kept = prune(filters, readers, base.info.region_specs, base.info.schema)

        def pin(region: RegionReader) -> PinnedRegion:
            if recorded is None and consistency == "strong":
                manifest, end = region.pin()
            else:
                manifest = manifests[region.region_id] if recorded else region.refresh()
                end = manifest.replay_after_wal_entry_position + 1
            region.sources(base, manifest, ())  # raises where this base version is too old
            return PinnedRegion(manifest, end)

        pinned = tuple(self.parallel(pin, kept))
        return PinnedSnapshot(base.version, pinned, len(readers) - len(kept))

    def _reader(self, manifest: RegionManifest, base: BaseTable) -> RegionReader:
        with self._lock:
            reader = self._regions.get(manifest.region_id)
            if reader is None:
                reader = RegionReader(self._context, manifest, base)
                self._regions[manifest.region_id] = reader
                if reader.values is None:
                    self._without_values.append(reader)
                else:
                    self._by_values[(reader.spec_id, tuple(reader.values.values()))] = reader
            return reader

    def _first_look(self, region_id: UUID) -> RegionManifest | None:
        store, specs = self._context.store, self._tracker.current.info.region_specs
        try:
            manifest = RegionManifests(store, region_id).latest()
            spec = next((s for s in specs if s.spec_id == manifest.region_spec_id), None)
            if spec is not None and manifest.region_values is None:
                # Native code does not note the values' types: the spec knows them.
                typed = RegionManifests(store, region_id, value_types(spec))
                manifest = typed.read(manifest.version)
            return manifest
        except NotFoundError:
            return None  # a folder whose creator has not come to its manifest yet

    def parallel(self, call: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """The results of `call`, in order; several at once where each waits for a remote store."""
        items = list(items)
        if not self._context.store.remote or len(items) < 2:
            return [call(item) for item in items]
        with ThreadPoolExecutor(min(_PARALLEL_REQUESTS, len(items))) as pool:
            return list(pool.map(call, items))
