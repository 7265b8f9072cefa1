"""The state that the checks share; each part is read once, when a check first needs it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import lance

from exec_nodes.base.lazy import lazy_property
from exec_nodes.base.tasks import map_concurrently
from exec_nodes.resident.store import ResidentStore
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.sources.source import SourceKeys
from memwal_sql.errors import MemWalError, StoreUnavailableError
from memwal_sql.maintain.gc.listing import RegionFiles, Survey, survey_regions
from memwal_sql.read.left_out_values import with_values
from memwal_sql.read.region import values_in_order
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.storage import paths
from memwal_sql.storage.base.index_identity import is_own
from memwal_sql.storage.base.versions import BaseVersion, read_base_version, version_numbers
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.records.intent import Intent
from memwal_sql.storage.region.manifest import FlushedGeneration, RegionManifest
from memwal_sql.storage.region.versions import RegionManifests
from planner.regions.spec import RegionSpec
from planner.regions.values import RegionValue, region_name


@dataclass(frozen=True)
class CheckedRegion:
    """A region with a readable newest manifest. `values` is None if they are unknown."""

    files: RegionFiles
    manifest: RegionManifest
    spec: RegionSpec | None
    values: dict[str, RegionValue] | None

    @property
    def region_id(self) -> UUID:
        return self.manifest.region_id

    @property
    def name(self) -> str:
        return region_name(self.region_id, self.values)

    @property
    def folder(self) -> str:
        return paths.region_folder(self.region_id)

    @property
    def flushed(self) -> int:
        return self.manifest.replay_after_wal_entry_position

    @property
    def positions(self) -> list[int]:
        return sorted(self.files.wal)

    @property
    def last(self) -> int:
        return max(self.files.wal, default=0)

    @property
    def followed(self) -> int:
        """The first WAL entry that a change feed may still read: none above it was collected."""
        first = self.flushed + 1
        while first - 1 in self.files.wal:
            first -= 1
        return first


@dataclass(frozen=True, slots=True)
class EntryHead:
    """A WAL entry without its rows. `is_claim`: whether it is the fence of a claim; `is_native`:
    whether native code wrote it."""

    position: int
    epoch: int
    rows: int
    intent: Intent | None
    is_claim: bool
    is_native: bool


class CheckState:
    """The state of a table during one pass of the checks, at one base version.

    `damaged` has the unreadable WAL entries, by region and position, each with the position of the
    fence that lists it as skipped; `heads` the readable entries of a region from its first intent
    on. The check of the logs fills both. `refused` has what the store did not give.
    """

    def __init__(self, context: TableContext, base: BaseTable) -> None:
        self.context = context
        self.store = context.store
        self.base = base
        self.damaged = defaultdict[UUID, dict[int, tuple[MemWalError, int | None]]](dict)
        self.heads = defaultdict[UUID, list[EntryHead]](list)
        self.refused: list[StoreUnavailableError] = []
        self._keys: dict[str, SourceKeys] = {}

    def note(self, failure: BaseException) -> None:
        """Add a failure to `refused`, if it is one of the store."""
        if isinstance(failure, StoreUnavailableError):
            self.refused.append(failure)

    @lazy_property
    def has_own_index(self) -> bool:
        """Whether the MemWAL index is the table's own. By another one nothing can be said of
        regions, nor of what was merged."""
        return is_own(self.base.dataset.schema.metadata, self.base.details)

    @lazy_property
    def survey(self) -> Survey:
        return survey_regions(self.store)

    @lazy_property
    def versions(self) -> dict[int, BaseVersion | MemWalError]:
        """The base versions that exist, or the error that each raises."""

        def read(number: int) -> BaseVersion | MemWalError | None:
            try:
                return read_base_version(self.store, number)
            except MemWalError as error:
                return error

        numbers = version_numbers(self.store)
        versions_read = map_concurrently(read, numbers) if self.store.remote else map(read, numbers)
        return {
            n: version
            for n, version in zip(numbers, versions_read, strict=True)
            if version is not None
        }

    @lazy_property
    def regions(self) -> list[CheckedRegion]:
        """The regions with a readable newest manifest; the check of manifests reports the
        others."""
        regions: list[CheckedRegion] = []
        for region_id in sorted(self.survey.regions):
            try:
                regions += self._region(self.survey.regions[region_id])
            except MemWalError as failure:
                self.note(failure)
        return regions

    def merged(self, region_id: UUID) -> int:
        return self.base.details.merged_generations.get(region_id, 0)

    def unmerged(self, region: CheckedRegion) -> list[FlushedGeneration]:
        """The generations that queries read, ascending, whose folders exist."""
        return [
            generation
            for generation in region.manifest.flushed_generations
            if generation.generation > self.merged(region.region_id)
            and generation.path in region.files.generations
        ]

    def uri(self, region: CheckedRegion, flushed: FlushedGeneration) -> str:
        return paths.generation_uri(lance_uri(self.context.uri), region.region_id, flushed.path)

    def generation(self, region: CheckedRegion, flushed: FlushedGeneration) -> Any:
        options = self.context.storage_options
        return lance.dataset(self.uri(region, flushed), storage_options=options)

    def keys(self, region: CheckedRegion, flushed: FlushedGeneration) -> SourceKeys:
        keys = self._keys.get(flushed.path)
        if keys is None:
            bloom = paths.bloom_filter_path(region.region_id, flushed.path)
            source = LanceSource.flushed(
                self.uri(region, flushed),
                region=region.name,
                generation=flushed.generation,
                info=self.base.info,
                resident=ResidentStore(0),  # reads the disk, not earlier results
                storage_options=self.context.storage_options,
                bloom=partial(self.store.get, bloom),
            )
            keys = self._keys[flushed.path] = source.keys()
        return keys

    def _region(self, files: RegionFiles) -> Iterator[CheckedRegion]:
        if not files.manifests:
            return
        manifest = RegionManifests(self.store, files.region_id).read(max(files.manifests))
        with suppress(StoreUnavailableError):  # the check of manifests reports it
            manifest = with_values(self.context, self.base, manifest)
        spec = self.base.info.spec(manifest.region_spec_id)
        yield CheckedRegion(files, manifest, spec, values_in_order(manifest, self.base.info))
