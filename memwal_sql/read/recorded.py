"""The regions recorded in the MemWAL index of a base version (specification 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from memwal_sql.errors import RetryError
from memwal_sql.read.region import values_in_order
from memwal_sql.read.twins import ValuesKey, is_unmerged, twins_error
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.storage.base.merge_token import partial_generation, unknown_partial
from memwal_sql.storage.base.versions import recorded_manifests
from memwal_sql.storage.region.manifest import RegionManifest
from planner.model import TableInfo
from planner.predicates.expr import Predicate
from planner.regions.pruning import pinned_values, prune
from planner.regions.values import RegionValue

_BYTES_PER_REGION = 1536


@dataclass(frozen=True, slots=True)
class RecordedRegion:
    """A region as a version has recorded it. Its values never change, however old the record is."""

    manifest: RegionManifest
    values: Mapping[str, RegionValue] | None

    @property
    def region_id(self) -> UUID:
        return self.manifest.region_id

    @property
    def spec_id(self) -> int:
        return self.manifest.region_spec_id


class RecordedView:
    """The regions recorded at a base version, by their values: planning then depends on a query's
    regions."""

    def __init__(self, manifests: list[RegionManifest], info: TableInfo) -> None:
        self.manifests = manifests
        self._info = info
        self.regions = [RecordedRegion(m, values_in_order(m, info)) for m in manifests]
        self._without = [region for region in self.regions if region.values is None]
        self._by_values: dict[ValuesKey, list[RecordedRegion]] = {}
        for region in self.regions:
            if region.values is not None:
                key = region.spec_id, tuple(region.values.values())
                self._by_values.setdefault(key, []).append(region)
        self._spec_ids = {spec_id for spec_id, _ in self._by_values}
        self.folders = frozenset(str(r.region_id) for r in self.regions if r.values is not None)
        """The folders of the regions that have values."""

    def of_keys(self, keys: Iterable[ValuesKey]) -> list[RecordedRegion]:
        """The regions with these values."""
        return [region for key in keys for region in self._by_values.get(key, ())]

    def chosen(self, filters: Sequence[Predicate]) -> tuple[RecordedRegion, ...]:
        """The regions that `prune` leaves, in any order."""
        info = self._info
        candidates = self._pinned(tuple(filters)) if filters else None
        regions = self.regions if candidates is None else candidates
        return prune(filters, regions, info.region_specs, info.schema)

    def check_twins(self, uri: str, base: BaseTable) -> None:
        """Raise RepairError for regions with the same values that have rows above the base
        table."""
        for twins in self._by_values.values():
            live = [r.region_id for r in twins if len(twins) > 1 and is_unmerged(r.manifest, base)]
            if len(live) > 1:
                raise twins_error(uri, twins[0].values, live)

    def _pinned(self, filters: tuple[Predicate, ...]) -> list[RecordedRegion] | None:
        """The regions that the filters pin; None if they leave a spec open."""
        specs = [spec for spec in self._info.region_specs if not spec.is_manual]
        if not self._spec_ids <= {spec.spec_id for spec in specs}:
            return None
        keys: list[ValuesKey] = []
        for spec in specs:
            values = pinned_values(filters, spec, self._info.schema)
            if values is None:
                return None
            keys += [(spec.spec_id, value) for value in values]
        return self._without + self.of_keys(keys)


def recorded_view(context: TableContext, base: BaseTable) -> RecordedView | None:
    """The region states recorded at `base`; None if none were, if the file is gone, or if they lack
    a generation that is merged in part (protocol rule 20).

    Readers of the present then take the region manifests; a version that was asked for reads as the
    base table alone (protocol rules 18 and 23).
    """
    key = context.scope.key("recorded regions", base.etag, base.etag)
    cached: RecordedView | None = context.scope.store.get(key)
    if cached is None:
        manifests = recorded_manifests(context.store, base.details, base.info.region_specs)
        if manifests is None or not _covers_parts(base, manifests):
            return None
        cached = RecordedView(manifests, base.info)
        context.scope.store.put(key, cached, _BYTES_PER_REGION * len(manifests))
    return cached


def recorded_regions(context: TableContext, base: BaseTable) -> list[RegionManifest] | None:
    """As `recorded_view`, the manifests alone."""
    view = recorded_view(context, base)
    return None if view is None else view.manifests


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
    if not progress:
        return True
    by_region = {manifest.region_id: manifest for manifest in manifests}
    for region_id, manifest in by_region.items():
        part = partial_generation(progress, region_id)
        if part is not None and manifest.current_generation <= part:
            return False
    return not unknown_partial(progress, by_region)
