"""What the checks look at; each part is read once, when a check first asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import lance

from exec_nodes.base.lazy import lazy_property
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
from memwal_sql.storage.base.versions import (
    BaseVersion,
    base_versions,
    read_base_version,
    version_numbers,
)
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.region.manifest import FlushedGeneration, RegionManifest
from memwal_sql.storage.region.versions import RegionManifests
from planner.regions.spec import RegionSpec
from planner.regions.values import RegionValue, region_name


@dataclass(frozen=True)
class CheckedRegion:
    """A region whose newest manifest can be read. `values` is None where they are not known."""

    files: RegionFiles
    manifest: RegionManifest
    spec: RegionSpec | None
    values: dict[str, RegionValue] | None

    @property
    def region_id(self) -> UUID:
        """Its id."""
        return self.manifest.region_id

    @property
    def name(self) -> str:
        """As plans print it."""
        return region_name(self.region_id, self.values)

    @property
    def folder(self) -> str:
        """Its folder, relative to the table's root."""
        return paths.region_folder(self.region_id)


class CheckState:
    """One look at a table, at one version of the base."""

    def __init__(self, context: TableContext, base: BaseTable) -> None:
        self.context = context
        self.store = context.store
        self.base = base
        self._keys: dict[str, SourceKeys] = {}

    @lazy_property
    def survey(self) -> Survey:
        """The files of all regions."""
        return survey_regions(self.store)

    @property
    def versions(self) -> tuple[BaseVersion, ...]:
        """The base versions that Lance keeps and that can be read."""
        return self._versions[0]

    @property
    def unreadable_versions(self) -> Mapping[int, MemWalError]:
        """The others, with what is wrong with each."""
        return self._versions[1]

    @lazy_property
    def _versions(self) -> tuple[tuple[BaseVersion, ...], Mapping[int, MemWalError]]:
        with suppress(MemWalError):
            return base_versions(self.store, self.context.scope), {}
        found: list[BaseVersion] = []
        bad: dict[int, MemWalError] = {}
        for number in version_numbers(self.store):
            try:
                version = read_base_version(self.store, number)
            except MemWalError as error:
                bad[number] = error
            else:
                found += [] if version is None else [version]
        return tuple(found), bad

    @lazy_property
    def regions(self) -> list[CheckedRegion]:
        """The regions with a readable newest manifest; what is wrong with others is the business
        of the check of manifests."""
        found = []
        for region_id in sorted(self.survey.regions):
            files = self.survey.regions[region_id]
            try:
                region = self._region(files)
            except MemWalError:
                continue
            if region is not None:
                found.append(region)
        return found

    def merged(self, region_id: UUID) -> int:
        """The last generation of a region that is whole in the base table."""
        return self.base.details.merged_generations.get(region_id, 0)

    def unmerged(self, region: CheckedRegion) -> list[FlushedGeneration]:
        """The generations that queries read, ascending, whose folders are there."""
        return [
            one
            for one in region.manifest.flushed_generations
            if one.generation > self.merged(region.region_id)
            and one.path in region.files.generations
        ]

    def generation(self, region: CheckedRegion, flushed: FlushedGeneration) -> Any:
        """The Lance dataset of a generation."""
        return lance.dataset(
            self._uri(region, flushed), storage_options=self.context.storage_options
        )

    def keys(self, region: CheckedRegion, flushed: FlushedGeneration) -> SourceKeys:
        """The keys of a generation, tombstones too."""
        known = self._keys.get(flushed.path)
        if known is None:
            bloom = paths.bloom_filter_path(region.region_id, flushed.path)
            source = LanceSource.flushed(
                self._uri(region, flushed),
                region=region.name,
                generation=flushed.generation,
                info=self.base.info,
                resident=ResidentStore(0),  # what is on disk, not what was read before
                storage_options=self.context.storage_options,
                bloom=partial(self.store.get, bloom),
            )
            known = self._keys[flushed.path] = source.keys()
        return known

    def _uri(self, region: CheckedRegion, flushed: FlushedGeneration) -> str:
        return paths.generation_uri(lance_uri(self.context.uri), region.region_id, flushed.path)

    def _region(self, files: RegionFiles) -> CheckedRegion | None:
        if not files.manifests:
            return None
        newest = max(files.manifests)
        manifest = RegionManifests(self.store, files.region_id).read(newest)
        with suppress(StoreUnavailableError):  # which the check of manifests meets, and reports
            manifest = with_values(self.context, self.base, manifest)
        spec = self.base.info.spec(manifest.region_spec_id)
        return CheckedRegion(files, manifest, spec, values_in_order(manifest, self.base.info))
