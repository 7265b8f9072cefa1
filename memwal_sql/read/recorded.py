"""The regions recorded in the MemWAL index of a base version (specification 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from memwal_sql.errors import CorruptFileError, RetryError
from memwal_sql.read.region import RegionReader, values_in_order
from memwal_sql.read.twins import ValuesKey
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.storage.base.merge_token import partial_generation, unknown_partial
from memwal_sql.storage.base.versions import recorded_manifests
from memwal_sql.storage.region.manifest import RegionManifest
from planner.model import TableInfo
from planner.predicates.expr import Predicate
from planner.regions.pruning import pinned_values, prune
from planner.regions.values import RegionValue

_BYTES_PER_REGION = 1024


def recorded_regions(context: TableContext, base: BaseTable) -> list[RegionManifest] | None:
    """The region states recorded at `base`; None if none were, if the file is gone, or if they lack
    a generation that is merged in part (protocol rule 20).

    Readers of the present then take the region manifests; a version that was asked for reads as the
    base table alone (protocol rules 18 and 23).
    """
    key = context.scope.key("recorded regions", base.etag, base.etag)
    cached: list[RegionManifest] | None = context.scope.store.get(key)
    if cached is None:
        cached = recorded_manifests(context.store, base.details, base.info.region_specs)
        if cached is None:
            return None
        if not _covers_parts(base, cached):
            return None
        context.scope.store.put(key, cached, _BYTES_PER_REGION * len(cached))
    return cached


@dataclass(frozen=True)
class RecordedValues:
    """The values of a region, known without its manifest."""

    region_id: UUID
    spec_id: int
    values: Mapping[str, RegionValue]

    @property
    def key(self) -> ValuesKey:
        """Identifies the region in the table."""
        return self.spec_id, tuple(self.values.values())


def recorded_values(context: TableContext, base: BaseTable) -> list[RecordedValues]:
    """The values of the regions recorded at `base` that have any; they never change, however old
    the record is. Empty for a damaged record, which readers of the present do without."""
    try:
        manifests = recorded_regions(context, base) or []
    except CorruptFileError:
        return []
    pairs = ((manifest, values_in_order(manifest, base.info)) for manifest in manifests)
    return [
        RecordedValues(manifest.region_id, manifest.region_spec_id, values)
        for manifest, values in pairs
        if values is not None
    ]


def check_whole(context: TableContext, base: BaseTable) -> None:
    """Raise RetryError for a version that has a part of a generation and can't be read with the
    rest of it, as no record names the generation."""
    check_parts(context, base, recorded_regions(context, base) or ())


def check_parts(
    context: TableContext, base: BaseTable, manifests: Iterable[RegionManifest]
) -> None:
    """As `check_whole`, for region states that are read over the version."""
    if not _covers_parts(base, manifests):
        raise RetryError(
            f"version {base.version} of {context.uri} was committed in the middle of a merge: open"
            " the version before it, or a later one"
        )


def _covers_parts(base: BaseTable, manifests: Iterable[RegionManifest]) -> bool:
    """Whether every generation that is merged in part is hidden by the whole one."""
    progress = base.details.merged_generations
    by_region = {manifest.region_id: manifest for manifest in manifests}
    for region_id, manifest in by_region.items():
        part = partial_generation(progress, region_id)
        if part is not None and manifest.current_generation <= part:
            return False
    return not unknown_partial(progress, by_region)


class RecordedView:
    """Recorded regions, indexed once per base version: planning then depends on a query's
    regions."""

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
        """The recorded state."""
        return self._manifests[reader.region_id]

    def chosen(self, filters: Sequence[Predicate], info: TableInfo) -> tuple[RegionReader, ...]:
        """The regions that `prune` leaves, in order."""
        candidates = self._pinned(tuple(filters), info) if filters else None
        regions = self.readers if candidates is None else candidates
        return prune(filters, regions, info.region_specs, info.schema)

    def _pinned(self, filters: tuple[Predicate, ...], info: TableInfo) -> list[RegionReader] | None:
        """The regions that the filters pin; None if they leave a spec open."""
        specs = [spec for spec in info.region_specs if not spec.is_manual]
        if not self._spec_ids <= {spec.spec_id for spec in specs}:
            return None
        readers_pinned = list(self._without)
        for spec in specs:
            values = pinned_values(filters, spec, info.schema)
            if values is None:
                return None
            readers = (self._by_values.get((spec.spec_id, value)) for value in values)
            readers_pinned += [reader for reader in readers if reader is not None]
        return sorted(readers_pinned, key=lambda reader: reader.order)
