"""The regions recorded at one base version, in order and by their values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from memwal_sql.read.region import RegionReader
from memwal_sql.storage.region.manifest import RegionManifest
from planner.model import TableInfo
from planner.predicates.expr import Predicate
from planner.regions.pruning import pinned_values, prune
from planner.regions.values import RegionValue


class RecordedView:
    """Made once a base version: planning costs what a query's own regions cost, not all."""

    def __init__(self, regions: Iterable[tuple[RegionReader, RegionManifest]]) -> None:
        pairs = sorted(regions, key=lambda pair: pair[0].order)
        self.readers = [reader for reader, _ in pairs]
        self._manifests: dict[UUID, RegionManifest] = {r.region_id: m for r, m in pairs}
        self._by_values: dict[tuple[int, tuple[RegionValue, ...]], RegionReader] = {}
        self._without: list[RegionReader] = []
        self._spec_ids = {reader.spec_id for reader in self.readers if reader.values is not None}
        for reader in self.readers:
            if reader.values is None:
                self._without.append(reader)
            else:
                self._by_values[(reader.spec_id, tuple(reader.values.values()))] = reader

    def manifest(self, reader: RegionReader) -> RegionManifest:
        """The state that was recorded."""
        return self._manifests[reader.region_id]

    def kept(self, filters: Sequence[Predicate], info: TableInfo) -> tuple[RegionReader, ...]:
        """What `prune` keeps, in order."""
        candidates = self._pinned(tuple(filters), info) if filters else None
        regions = self.readers if candidates is None else candidates
        return prune(filters, regions, info.region_specs, info.schema)

    def _pinned(self, filters: tuple[Predicate, ...], info: TableInfo) -> list[RegionReader] | None:
        """The regions that the filters pin; None where they leave a spec open."""
        specs = [spec for spec in info.region_specs if not spec.is_manual]
        if not self._spec_ids <= {spec.spec_id for spec in specs}:
            return None
        found = list(self._without)
        for spec in specs:
            values = pinned_values(filters, spec, info.schema)
            if values is None:
                return None
            readers = (self._by_values.get((spec.spec_id, one)) for one in values)
            found += [reader for reader in readers if reader is not None]
        return sorted(found, key=lambda reader: reader.order)
