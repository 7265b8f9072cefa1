"""The loaded regions of a table, by their ids and by their values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import partial
from operator import attrgetter
from threading import Lock
from uuid import UUID

from exec_nodes.sources.source import Source
from memwal_sql.errors import CorruptFileError, InvalidCallError, NotFoundError
from memwal_sql.read.left_out_values import is_lancedbs, may_come, with_values
from memwal_sql.read.recorded import RecordedRegion, RecordedView, recorded_view
from memwal_sql.read.region import RegionReader, StaleBaseError, values_in_order
from memwal_sql.read.twins import ValuesKey, is_emptied, twins_error
from memwal_sql.state.base_table import BaseTable, BaseTracker
from memwal_sql.state.context import TableContext
from memwal_sql.storage.objects.concurrent import map_remote, run_with
from memwal_sql.storage.paths import MEM_WAL_FOLDER, region_of
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.versions import RegionManifests
from planner.predicates.expr import Predicate
from planner.regions.ids import lancedb_id
from planner.regions.pruning import pinned_values
from planner.regions.values import RegionValue

Recent = tuple[RegionManifest, float | None]
"""A manifest, and when a probe of it began that found none above it."""


class RegionRegistry:
    """Finds the regions of one table, and keeps a reader for each. Safe to use from several
    threads."""

    def __init__(self, context: TableContext, tracker: BaseTracker, *, pinned: bool) -> None:
        """`pinned`: no newer version of the table than the tracker's is looked for."""
        self._context = context
        self._tracker = tracker
        self._pinned = pinned
        self._remote = context.store.remote
        self._regions: dict[UUID, RegionReader] = {}
        self._folders: set[str] = set()  # of these regions
        self._passed_over: set[str] = set()  # folders
        self._by_values: dict[ValuesKey, RegionReader] = {}
        self._twins: dict[ValuesKey, list[RegionReader]] = {}
        self._without_values: tuple[RegionReader, ...] = ()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._regions)

    @property
    def passed_over(self) -> int:
        """The number of regions that are known and were not needed yet."""
        return len(self._passed_over)

    def regions_of(self, base: BaseTable, keys: Collection[ValuesKey]) -> list[RegionReader | None]:
        """The regions with these values, in their order. Regions are listed, once for all, only
        while one is unknown, or while there may be another with its values; other regions with
        recorded values are not read. Raises RepairError if there is another.
        """
        readers = [self._by_values.get(key) for key in keys]
        if None in readers:
            self.find_new_regions(base, lambda recorded: recorded.of_keys(keys))
            readers = [self._by_values.get(key) for key in keys]
        if True in [reader is not None and reader.may_have_twin for reader in readers]:
            self.regions(base)
        if self._twins:
            for key in [key for key in keys if key in self._twins]:
                self._check_twins(base, key)
            readers = [self._by_values.get(key) for key in keys]
        return readers

    def manifests_of(
        self, spec_id: int, regions: Sequence[Mapping[str, RegionValue]]
    ) -> list[RegionManifest | None]:
        """The manifests of the regions with these values, None for those that do not exist, over
        the base version that was read last; for writers.

        Raises InvalidCallError if a region's values are unknown: it may be the one, and a second
        region for the same keys would hide rows (protocol rules 10 and 11).
        """
        base = self._tracker.loaded
        keys = {(spec_id, tuple(values.values())): values for values in regions}
        try:
            readers = self.regions_of(base, keys)
        except StaleBaseError:  # a twin was emptied just now
            readers = self.regions_of(self._tracker.latest(), keys)
        spec = base.info.spec(spec_id)
        places = {spec and lancedb_id(spec, values): n for n, values in enumerate(keys.values())}
        unknown = []
        for reader in self._without_values:
            if reader.region_id in places:
                place = places[reader.region_id]
                readers[place] = readers[place] or reader
            elif not is_lancedbs(self._context, base, reader.refresh()):
                unknown.append(str(reader.region_id))
        if unknown:
            raise InvalidCallError(
                f"{self._context.uri} has regions whose values native code has not written down: "
                f"{sorted(unknown)}, under ids that LanceDB does not derive from values. Rows "
                "can't be routed while they exist: go on writing with native code, or merge them "
                "all, remove their folders, and write with this package only"
            )
        return map_remote(
            self._remote, lambda reader: None if reader is None else reader.refresh(), readers
        )

    def without_values(self, base: BaseTable) -> list[RegionReader]:
        """Regions without known values, manual or made by native code: any key may be in them.

        They are listed again if the table has such regions, or no spec to derive them from.
        """
        if self._without_values or not base.info.region_specs:
            self.find_new_regions(base)
        return list(self._without_values)

    def regions(self, base: BaseTable) -> list[RegionReader]:
        """Every region of the table, after a search for new ones, in a stable order, with their
        values where known."""
        self.find_new_regions(base)
        # Without its values a region can't be told from one with the same values.
        unknown = [reader for reader in self._without_values if may_come(base, reader.manifest)]
        for manifest in map_remote(
            self._remote, lambda reader: with_values(self._context, base, reader.refresh()), unknown
        ):
            self.reader(manifest, base)
        return self.loaded()

    def check_values(
        self, base: BaseTable, sources_of_regions: Iterable[tuple[RegionReader, Sequence[Source]]]
    ) -> None:
        """Look again for the values of regions in which rows were found. Without rows nothing tells
        the values, and another region with the same values does not matter.

        Raises StaleBaseError if values became known, as another region may have the same.
        """
        unknown = [reader for reader, rows in sources_of_regions if rows and reader.values is None]
        if unknown and any(may_come(base, reader.manifest) for reader in unknown):
            self.regions(base)
            if any(self._regions[reader.region_id] is not reader for reader in unknown):
                raise StaleBaseError("values of regions became known")

    def find_new_regions(
        self,
        base: BaseTable,
        choose: Callable[[RecordedView], Iterable[RecordedRegion]] | None = None,
    ) -> None:
        """Load new regions; the values of loaded ones stay unchanged.

        Regions with recorded values are read only if `choose` returns them, as a region never
        changes its values.
        """
        # Sets of names, as there may be very many that are neither new nor chosen.
        names = set(self._context.store.list_folders(MEM_WAL_FOLDER)) - self._folders
        passed_over: set[str] = set()
        if names and choose is not None and (recorded := self._recorded(base)) is not None:
            chosen = {str(region.region_id) for region in choose(recorded)}
            passed_over = (names & recorded.folders) - chosen
        listed = map(region_of, sorted(names - passed_over))
        new = [region_id for region_id in listed if region_id and region_id not in self._regions]
        self.pass_over(passed_over)
        if new:
            # They may belong to a table that was made again: then this raises.
            recent: list[Recent | None] = []
            check = (lambda: None) if self._pinned else self._tracker.check_same
            find = partial(map_remote, self._remote, self._recent, new)
            run_with(self._remote, check, lambda: recent.extend(find()))
            for manifest, began in filter(None, recent):
                reader = self.reader(manifest, base)
                if began is not None:
                    reader.note_newest(manifest, began)

    def pass_over(self, folders: Set[str]) -> None:
        """Note the folders of all regions that are known and not loaded; among them may be some
        that others have loaded meanwhile."""
        with self._lock:
            self._passed_over = set(folders - self._folders)

    def loaded(self) -> list[RegionReader]:
        """The loaded regions, in a stable order."""
        readers = list(self._regions.values())  # in one step, as other threads may add to it
        readers.sort(key=attrgetter("order"))
        return readers

    def check_twins(self, base: BaseTable) -> None:
        """Raise RepairError if loaded regions have the same values, and StaleBaseError if one of
        them is merged in a newer base version."""
        for key in tuple(self._twins):
            self._check_twins(base, key)

    def twins(self) -> list[list[RegionReader]]:
        """The loaded regions with the same values."""
        return [list(regions) for regions in self._twins.values()]

    def live(self, base: BaseTable, regions: list[RegionReader]) -> list[RegionReader]:
        """The regions that have rows or may get some. Raises as `check_twins`."""
        if not self._twins:
            return regions
        self.check_twins(base)
        twins = {reader for group in self.twins() for reader in group}
        return [reader for reader in regions if reader not in twins or not is_emptied(reader, base)]

    def pinned_by(self, base: BaseTable, filters: Sequence[Predicate]) -> list[RegionReader] | None:
        """The regions of the values that `filters` leave, if all of them are loaded and no other
        region can have their rows; None if new regions must be looked for."""
        if not filters or self._without_values or not base.info.region_specs:
            return None
        readers = []
        for spec in base.info.region_specs:
            values = pinned_values(tuple(filters), spec, base.info.schema)
            if values is None or spec.is_manual:
                return None
            for value in values:
                region = self._by_values.get((spec.spec_id, value))
                if region is None or region.may_have_twin or (spec.spec_id, value) in self._twins:
                    return None
                readers.append(region)
        return sorted(readers, key=attrgetter("order"))

    def reader(self, manifest: RegionManifest, base: BaseTable) -> RegionReader:
        """The reader of a manifest's region, which is loaded from now on."""
        with self._lock:
            existing = self._regions.get(manifest.region_id)
            if existing is not None and (
                existing.values is not None or values_in_order(manifest, base.info) is None
            ):
                return existing
            reader = RegionReader(self._context, manifest, base)
            self._regions[manifest.region_id] = reader
            self._folders.add(str(manifest.region_id))
            self._passed_over.discard(str(manifest.region_id))
            # Replaced each time, as other threads iterate over it without the lock.
            without = tuple(reader for reader in self._without_values if reader is not existing)
            if reader.values is None:
                self._without_values = (*without, reader)
            else:
                key = reader.spec_id, tuple(reader.values.values())
                first = self._by_values.setdefault(key, reader)
                self._without_values = without
                if first is not reader:
                    self._twins.setdefault(key, [first]).append(reader)
            return reader

    def _check_twins(self, base: BaseTable, key: ValuesKey) -> None:
        alive = [reader for reader in self._twins[key] if not is_emptied(reader, base)]
        if len(alive) > 1:
            latest = self._tracker.latest()
            if sum(not is_emptied(reader, latest) for reader in alive) < len(alive):
                raise StaleBaseError(
                    f"of the regions {[str(reader.region_id) for reader in alive]} one was "
                    f"emptied after base version {base.version}"
                )
            ids = [reader.region_id for reader in alive]
            raise twins_error(self._context.uri, alive[0].values, ids)
        if alive:
            self._by_values[key] = alive[0]

    def _recorded(self, base: BaseTable) -> RecordedView | None:
        """None for a damaged record too: readers of the present do without it."""
        try:
            return recorded_view(self._context, base)
        except CorruptFileError:
            return None

    def _recent(self, region_id: UUID) -> Recent | None:
        began = self._context.clock()
        try:
            manifest, is_newest = RegionManifests(self._context.store, region_id).recent()
        except NotFoundError:
            return None  # a folder whose creator has not written its manifest yet
        manifest = with_values(self._context, self._tracker.loaded, manifest)
        return manifest, began if is_newest else None
