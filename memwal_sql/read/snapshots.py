"""Collects the sources of a query into one immutable snapshot (protocol rules 14 and 15)."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter
from threading import Lock
from typing import Literal, TypeVar
from uuid import UUID

from exec_nodes.sources.source import Source
from memwal_sql.errors import (
    InvalidCallError,
    NotFoundError,
    SourceGoneError,
    TableReplacedError,
)
from memwal_sql.read.index_lag import IndexGaps
from memwal_sql.read.left_out_values import is_lancedbs, may_come, with_values
from memwal_sql.read.look import ask_all
from memwal_sql.read.pinned import PinnedRegion, PinnedSnapshot, PinnedTable
from memwal_sql.read.recorded import (
    RecordedValues,
    RecordedView,
    recorded_regions,
    recorded_values,
)
from memwal_sql.read.region import (
    RegionReader,
    StaleBaseError,
    gap_error,
    values_in_order,
)
from memwal_sql.read.served_version import ServedVersion
from memwal_sql.read.twins import ValuesKey, check_recorded, is_emptied, twins_error
from memwal_sql.read.warm_up import warm_up
from memwal_sql.state.base_table import BaseTable, BaseTracker
from memwal_sql.state.context import TableContext
from memwal_sql.storage.base.merge_token import MergeProgress
from memwal_sql.storage.objects.side_by_side import beside, side_by_side
from memwal_sql.storage.paths import MEM_WAL_FOLDER, region_of
from memwal_sql.storage.records.gc_watermarks import check_watermarks
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.versions import RegionManifests
from planner.model import RegionSources, Snapshot
from planner.predicates.expr import Predicate
from planner.regions.ids import lancedb_id
from planner.regions.pruning import pinned_values, prune
from planner.regions.values import RegionValue

_log = logging.getLogger(__name__)

Consistency = Literal["eventual", "manifest", "strong"]
CONSISTENCIES = ("eventual", "manifest", "strong")
ATTEMPTS = 8
# Readers move on from one version to the next, and back to the one that is served.
_MOST_CHECKED = 4
T = TypeVar("T")
R = TypeVar("R")


def check_consistency(value: str) -> None:
    """Raise InvalidCallError unless `value` names a consistency level."""
    if value not in CONSISTENCIES:
        raise InvalidCallError(f"consistency must be one of {CONSISTENCIES}, not {value!r}")


class SnapshotCollector:
    """Takes snapshots of one table; keeps what can't change between them.

    Attributes:
        pinned: whether one version is read, as it was recorded.
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
            pinned: read the tracker's version as it was recorded, and never a newer one.
            checkpoint: read these regions over that version; what a checkpoint holds.
        """
        self._context = context
        self._tracker = tracker
        self.pinned = pinned
        self._checkpoint = checkpoint
        self._served = ServedVersion(context, tracker, self._warm_up)
        self._checkpoint_regions: tuple[RegionSources, ...] | None = None
        self._regions: dict[UUID, RegionReader] = {}
        self._folders: set[str] = set()  # of these
        self._passed_over: Sequence[UUID] = ()  # by the last listing
        self._by_values: dict[ValuesKey, RegionReader] = {}
        self._twins: dict[ValuesKey, list[RegionReader]] = {}
        self._without_values: tuple[RegionReader, ...] = ()
        self._view: tuple[BaseTable, RecordedView] | None = None
        self._checked: OrderedDict[str, MergeProgress] = OrderedDict()
        self._lock = Lock()

    def begin(self, consistency: str) -> BaseTable:
        """The base version that a query begins with: the one that is served, or of the present the
        newest where the regions are read as they were recorded in it."""
        check_consistency(consistency)
        recorded = self.pinned or consistency == "eventual"
        return self.not_below_watermarks(self.newest() if recorded else self.served())

    def query(self, consistency: str, take: Callable[[BaseTable], T]) -> T:
        """`over_base`, with the version to `begin` with.

        On a remote store `take` is called with the version that is known while it is asked for a
        newer one, and that again where there is one: of any other error of it nothing is known.
        """
        if self.pinned or not self._context.store.remote:
            return self.over_base(self.begin(consistency), take)
        recorded = consistency == "eventual"
        known = self._tracker.current if recorded else self._served.current
        taken: list[T] = []

        def take_known() -> None:
            with suppress(Exception):  # raised below where it is none of an older version
                taken.append(take(known))

        base = beside(True, partial(self.begin, consistency), take_known)
        return taken[0] if taken and base is known else self.over_base(base, take)

    def over_base(self, base: BaseTable, take: Callable[[BaseTable], T]) -> T:
        """What `take` returns, called with a base version, and with newer ones where the regions
        are past it, or files of it or of a generation are gone: merged and collected meanwhile
        means again, never skip (protocol rule 14). Another table may be there now, which `catch_up`
        says. The one loop of all reads.

        Raises RepairError when that keeps happening, and SourceGoneError where a pinned version
        lacks files.
        """
        for _ in range(ATTEMPTS):
            try:
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
        """One consistent state of the table over a base version, without the regions that
        `filters` rule out.

        `"eventual"` reads the regions recorded in the MemWAL index, `"manifest"` the region
        manifests, `"strong"` the unflushed rows of every writer too.
        """
        if self.pinned or consistency == "eventual":
            found = self._recorded(base, filters)
        else:
            found = self._current(base, filters, strong=consistency == "strong")
        return replace(found, indexes=base.indexes.infos)

    def collect(self, consistency: str, filters: Sequence[Predicate] = ()) -> Snapshot:
        """The `snapshot` over the newest base version."""
        check_consistency(consistency)
        return self._over_newest(lambda base: self.snapshot(base, consistency, filters))

    def served(self) -> BaseTable:
        """The base version that queries of now begin with; its rows are those of the newest."""
        if self.pinned:
            return self._tracker.current
        return self._served.latest()

    def catch_up(self) -> BaseTable:
        """The newest base version, which queries begin with from now on."""
        return self._tracker.current if self.pinned else self._served.catch_up()

    def _warm_up(self, base: BaseTable) -> None:
        warm_up(self._current(base, (), strong=True))

    def newest(self) -> BaseTable:
        """The newest base version; of a pinned handle its own."""
        return self._tracker.current if self.pinned else self._tracker.latest()

    @property
    def reads_base_alone(self) -> bool:
        """Whether the version read has no record of the regions' states."""
        no_checkpoint = self._checkpoint is None
        return no_checkpoint and recorded_regions(self._context, self._tracker.current) is None

    def pin(self, consistency: str, filters: Sequence[Predicate] = ()) -> PinnedSnapshot:
        """What `collect` would read, by name, so that other processes can read the same.

        Buffered rows of this process's own writers are made durable for it.
        """
        check_consistency(consistency)
        return self._over_newest(lambda base: self._pin(base, consistency, filters))

    def _over_newest(self, take: Callable[[BaseTable], T]) -> T:
        return self.over_base(self.not_below_watermarks(self.newest()), take)

    def check_watermarks(self, base: BaseTable) -> None:
        """Raise TableReplacedError when a gap comes from a restore to below what was collected."""
        if not self.pinned:
            check_watermarks(self._context.store, base.details.merged_generations)

    def not_below_watermarks(self, base: BaseTable) -> BaseTable:
        """`base`, or a newer version in its place, whose merge progress is not below what was
        collected: as rows are lost there, whatever is read of it (protocol rule 22). That is asked
        once a version, and only where progress has not grown from the one before.

        Raises TableReplacedError.
        """
        if self.pinned or base.found.etag in self._checked:
            return base
        for _ in range(ATTEMPTS):
            progress = base.details.merged_generations
            with self._lock:
                before = next(reversed(self._checked.values()), None)
            if before is not None and _has_grown(before, progress):
                break
            try:
                check_watermarks(self._context.store, progress)
                break
            except TableReplacedError:
                newest = self._tracker.latest()
                if newest is base:
                    raise
                base = newest  # merged and collected meanwhile
        with self._lock:
            self._checked[base.etag] = progress
            if len(self._checked) > _MOST_CHECKED:
                self._checked.popitem(last=False)
        return base

    @property
    def takes_a_while(self) -> bool:
        """Whether regions are far away, and none is known yet."""
        return self._context.store.remote and not self._regions

    def region_of(
        self, base: BaseTable, key: ValuesKey, wanted: Collection[ValuesKey] | None = None
    ) -> RegionReader | None:
        """The region with these values; regions are listed only while it is not known, or while
        there may be another one. Raises RepairError where there is.

        Where only regions with the `wanted` values are asked for, no other is looked at whose
        values are recorded.
        """
        region = self._by_values.get(key)
        if region is None:
            if wanted is None:
                self._listed(base)
            else:
                self._listed(base, lambda recorded: [one for one in recorded if one.key in wanted])
            region = self._by_values.get(key)
        if region is not None and region.may_have_twin:
            self.regions(base)
        if key in self._twins:
            self._check_twins(base, key)
            region = self._by_values.get(key)
        return region

    def manifest_of(
        self, base: BaseTable, spec_id: int, values: Mapping[str, RegionValue]
    ) -> RegionManifest | None:
        """The manifest of the region with these values, if there is one; what writers ask.

        Raises InvalidCallError where a region's values are not known: it may be the one, and
        a second region for the same keys would hide rows (protocol rules 10 and 11).
        """
        key = spec_id, tuple(values.values())
        try:
            region = self.region_of(base, key)
        except StaleBaseError:  # a twin was emptied just now
            region = self.region_of(self.catch_up(), key)
        spec = base.info.spec(spec_id)
        derived = None if spec is None else lancedb_id(spec, values)
        unknown = []
        for one in self._without_values:
            if one.region_id == derived:
                region = region or one
            elif not is_lancedbs(self._context, base, one.refresh()):
                unknown.append(str(one.region_id))
        if unknown:
            raise InvalidCallError(
                f"{self._context.uri} has regions whose values native code has not written down: "
                f"{sorted(unknown)}, under ids that LanceDB does not derive from values. Rows "
                "can't be routed beside them: go on writing with native code, or merge them all, "
                "remove their folders, and write with this package only"
            )
        return None if region is None else region.refresh()

    def regions_without_values(self, base: BaseTable) -> list[RegionReader]:
        """Regions given by hand, or made by native code: any key may be in them.

        They are listed anew when the table has such regions, or no spec to derive them from.
        """
        if self._without_values or not base.info.region_specs:
            self._listed(base)
        return list(self._without_values)

    def regions(self, base: BaseTable) -> list[RegionReader]:
        """Every region of the table, after looking for new ones, in a stable order; their values
        as far as they can be known now."""
        self._listed(base)
        # Without its values a region can't be told from one that has the same.
        unknown = [one for one in self._without_values if may_come(base, one.manifest)]
        for manifest in self.parallel(partial(self._another_look, base), unknown):
            self._reader(manifest, base)
        return self._in_order()

    def check_values(
        self, base: BaseTable, found: Iterable[tuple[RegionReader, Sequence[Source]]]
    ) -> None:
        """Look again for the values of regions in which rows were found. As long as there are none
        nothing tells the values, and it does not matter that another region has the same.

        Raises StaleBaseError where they are known by that: it may have.
        """
        unknown = [one for one, rows in found if rows and one.values is None]
        if unknown and any(may_come(base, one.manifest) for one in unknown):
            self.regions(base)
            if any(self._regions[one.region_id] is not one for one in unknown):
                raise StaleBaseError("the values of regions are known now that were not before")

    def _listed(
        self,
        base: BaseTable,
        choose: Callable[[list[RecordedValues]], Iterable[RecordedValues]] | None = None,
    ) -> None:
        """Look for new regions; the values of those that were known before stay as they were.

        Of those with recorded values only the ones that `choose` returns are looked at: a region
        keeps its values for as long as it lives.
        """
        folders = self._context.store.list_folders(MEM_WAL_FOLDER)
        listed = [region_of(folder) for folder in folders if folder not in self._folders]
        new = [one for one in listed if one is not None and one not in self._regions]
        passed_over: set[UUID] = set()
        if new and choose is not None:
            recorded = recorded_values(self._context, base)
            chosen = {one.region_id for one in choose(recorded)}
            passed_over = {one.region_id for one in recorded}.intersection(new) - chosen
            new = [one for one in new if one not in passed_over]
        self._passed_over = tuple(passed_over)
        if new:
            # They may be those of a table that was made anew: then this raises.
            found: list[RegionManifest | None] = []
            check = (lambda: None) if self.pinned else self._tracker.verified
            look = partial(self.parallel, self._first_look, new)
            beside(self._context.store.remote, check, lambda: found.extend(look()))
            for manifest in found:
                if manifest is not None:
                    self._reader(manifest, base)

    def _in_order(self) -> list[RegionReader]:
        found = list(self._regions.values())  # at once, as other threads may add to it
        found.sort(key=attrgetter("order"))
        return found

    def regions_to_merge(self) -> list[RegionReader]:
        """Every region. Raises RepairError where two have the same values: what is merged last
        would win."""

        def found(base: BaseTable) -> list[RegionReader]:
            regions = self.regions(base)
            self.check_twins(base)
            return regions

        return self._over_newest(found)

    def check_twins(self, base: BaseTable) -> None:
        """Raise RepairError where regions that are known by now have the same values, and
        StaleBaseError where one of them is merged in a newer base version."""
        for key in tuple(self._twins):
            self._check_twins(base, key)

    def twins(self) -> list[list[RegionReader]]:
        """The regions with the same values among those known by now."""
        return [list(regions) for regions in self._twins.values()]

    def _check_twins(self, base: BaseTable, key: ValuesKey) -> None:
        alive = [one for one in self._twins[key] if not is_emptied(one, base)]
        if len(alive) > 1:
            newest = self.newest()
            if sum(not is_emptied(one, newest) for one in alive) < len(alive):
                raise StaleBaseError(
                    f"of the regions {[str(one.region_id) for one in alive]} one was emptied after "
                    f"base version {base.version}"
                )
            ids = [one.region_id for one in alive]
            raise twins_error(self._context.uri, alive[0].values, ids)
        if alive:
            self._by_values[key] = alive[0]

    def _live(self, base: BaseTable, regions: list[RegionReader]) -> list[RegionReader]:
        """The regions that have rows or may get some. Raises as `check_twins`."""
        if not self._twins:
            return regions
        self.check_twins(base)
        twins = {one for group in self.twins() for one in group}
        return [one for one in regions if one not in twins or not is_emptied(one, base)]

    def _current(self, base: BaseTable, filters: Sequence[Predicate], *, strong: bool) -> Snapshot:
        specs, schema = base.info.region_specs, base.info.schema
        found: dict[RegionReader, tuple[Source, ...]] = {}

        def kept_of(regions: list[RegionReader]) -> tuple[RegionReader, ...]:
            kept = prune(filters, regions, specs, schema)
            new = [one for one in kept if one not in found]
            found.update(zip(new, self.sources(base, new, strong=strong), strict=True))
            return kept

        def choose(recorded: list[RecordedValues]) -> tuple[RecordedValues, ...]:
            return prune(filters, recorded, specs, schema)

        # No answer about a region depends on which others there are.
        regions, known_regions = self._named(base, filters), len(self._regions)
        if regions is None:
            if self._context.store.remote and self._regions:
                known = self._live(base, self._in_order())
                beside(True, partial(self._listed, base, choose), partial(kept_of, known))
            else:
                self._listed(base, choose)
            regions = self._live(base, self._in_order())
            known_regions = len(regions)
        kept = kept_of(regions)
        self.check_values(base, found.items())
        collected = tuple(
            RegionSources(one.region_id, one.name, one.spec_id, one.values, found[one])
            for one in kept
        )
        gaps = IndexGaps(self._context, base, kept)
        passed_over = sum(one not in self._regions for one in self._passed_over)
        pruned = known_regions + passed_over - len(kept)
        if pruned:
            _log.debug("%s: %d of %d regions pruned", self._context.uri, pruned, known_regions)
        return Snapshot(base.info, base.source, collected, pruned, gaps=gaps)

    def _named(self, base: BaseTable, filters: Sequence[Predicate]) -> list[RegionReader] | None:
        """The regions of the values that `filters` leave, where all of them are known, and no other
        region can have their rows; None where that takes a look for new ones."""
        if not filters or self._without_values or not base.info.region_specs:
            return None
        found = []
        for spec in base.info.region_specs:
            values = pinned_values(tuple(filters), spec, base.info.schema)
            if values is None or spec.is_manual:
                return None
            for one in values:
                region = self._by_values.get((spec.spec_id, one))
                if region is None or region.may_have_twin or (spec.spec_id, one) in self._twins:
                    return None
                found.append(region)
        return sorted(found, key=attrgetter("order"))

    def sources(
        self,
        base: BaseTable,
        regions: Sequence[RegionReader],
        meanwhile: Callable[[list[Source]], None] | None = None,
        *,
        strong: bool,
    ) -> list[tuple[Source, ...]]:
        """What a query reads of each region. All that has to be asked before it is known that
        nothing is new is asked for side by side; where something is, the region goes on by
        itself. On a remote store `meanwhile` is called with the sources that are known already."""
        looks = [region.look(base, strong=strong) for region in regions]
        if not self._context.store.remote:
            return [region.looked(base, one) for region, one in zip(regions, looks, strict=True)]
        ask = partial(ask_all, [one.look for one in looks])
        if meanwhile is None:
            ask()
        else:
            known = [source for one in looks for source in one.known]
            beside(True, ask, partial(meanwhile, known))
        pairs = zip(regions, looks, strict=True)
        return self.parallel(lambda pair: pair[0].looked(base, pair[1]), pairs)

    def _recorded(self, base: BaseTable, filters: Sequence[Predicate]) -> Snapshot:
        if self._checkpoint is not None:
            return self._of_checkpoint(self._checkpoint, base, filters)
        manifests = recorded_regions(self._context, base)
        if manifests is None:  # never recorded, or lost to a merge (protocol rule 23)
            if self.pinned:
                return Snapshot(base.info, base.source, (), 0)
            return self._current(base, filters, strong=False)
        known = self._view
        if known is None or known[0] is not base:
            pairs = [(self._reader(manifest, base), manifest) for manifest in manifests]
            check_recorded(self._context.uri, pairs, base)
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
        self, checkpoint: PinnedSnapshot, base: BaseTable, filters: Sequence[Predicate]
    ) -> Snapshot:
        with self._lock:
            if self._checkpoint_regions is None:
                self._checkpoint_regions = PinnedTable(self._context).snapshot(checkpoint).regions
            regions = self._checkpoint_regions
        kept = prune(filters, regions, base.info.region_specs, base.info.schema)
        return Snapshot(base.info, base.source, kept, len(regions) - len(kept))

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
        if recorded is None:
            regions = [(region, region.manifest) for region in self._live(base, self.regions(base))]
        else:
            regions = [(self._reader(manifest, base), manifest) for manifest in recorded]
            check_recorded(self._context.uri, regions, base)
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
            known = self._regions.get(manifest.region_id)
            if known is not None and not _are_found(known, manifest, base):
                return known
            reader = RegionReader(self._context, manifest, base)
            self._regions[manifest.region_id] = reader
            self._folders.add(str(manifest.region_id))
            # Made anew each time, as other threads go through it without the lock.
            without = tuple(one for one in self._without_values if one is not known)
            if reader.values is None:
                self._without_values = (*without, reader)
            else:
                key = reader.spec_id, tuple(reader.values.values())
                first = self._by_values.setdefault(key, reader)
                self._without_values = without
                if first is not reader:
                    self._twins.setdefault(key, [first]).append(reader)
            return reader

    def _first_look(self, region_id: UUID) -> RegionManifest | None:
        try:
            manifest = RegionManifests(self._context.store, region_id).latest()
        except NotFoundError:
            return None  # a folder whose creator has not come to its manifest yet
        return with_values(self._context, self._tracker.current, manifest)

    def _another_look(self, base: BaseTable, region: RegionReader) -> RegionManifest:
        return with_values(self._context, base, region.refresh())

    def parallel(self, call: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """The results of `call`, in order; several at once where each waits for a remote store."""
        return side_by_side(self._context.store.remote, call, items)


def _are_found(region: RegionReader, manifest: RegionManifest, base: BaseTable) -> bool:
    """Whether a manifest has the values that were not known when the region was first seen."""
    return region.values is None and values_in_order(manifest, base.info) is not None


def _has_grown(before: MergeProgress, now: MergeProgress) -> bool:
    return all(now.get(shard, 0) >= mark for shard, mark in before.items())
