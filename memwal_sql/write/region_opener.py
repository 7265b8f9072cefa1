"""Finds or creates a region and becomes its writer (protocol rules 4 and 11)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import RLock
from typing import Any
from uuid import UUID

import pyarrow as pa

from exec_nodes.postings.analyzer import Analyzer
from memwal_sql.errors import (
    InvalidCallError,
    MemWalError,
    NotFoundError,
    RepairError,
    TableReplacedError,
    UnknownFormatError,
)
from memwal_sql.state.context import TableContext
from memwal_sql.state.replay import MakeMemTable, memtables_of
from memwal_sql.storage.region.manifest import FlushedGeneration, RegionManifest
from memwal_sql.storage.region.progress import beyond
from memwal_sql.storage.region.values import value_types
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.storage.wal.entry import entry_schema
from memwal_sql.storage.wal.log import Wal
from memwal_sql.write.back_pressure import MemoryBudget
from memwal_sql.write.claim import Claim, claim, claim_new
from memwal_sql.write.flusher import RegionFlusher
from memwal_sql.write.generation_writer import FindIndexes, GenerationWriter
from memwal_sql.write.options import WriterOptions
from memwal_sql.write.region_writer import RegionWriter
from memwal_sql.write.router import RegionValues
from memwal_sql.write.wal_writer import WalWriter
from planner.model import TableInfo
from planner.regions.ids import new_region_id, region_id
from planner.regions.spec import MANUAL_SPEC_ID, RegionSpec
from planner.regions.values import region_name

FindRegion = Callable[[int, RegionValues], RegionManifest | None]
OpenRegion = Callable[[], RegionWriter]


@dataclass(frozen=True, kw_only=True)
class RegionOpener:
    """Opens writers of a table's regions, with the state that they share.

    `base` is the Lance dataset of the base table, whose field ids stored rows carry.
    `check_claimable` raises if no region may be claimed now; a caller that opens several calls it
    before. `find` finds an existing region by spec id and values. `indexes` is called at every
    flush, as indexes may have been made meanwhile; `last_indexes`, its last result, for every
    MemTable. `merged` is the merge progress of a region in the base version read last. `submit`
    runs a flush soon. `lost` is called when a region finds that the table is another one now, or
    that this package has become too old to write it. All regions share `order`.
    """

    context: TableContext
    info: TableInfo
    base: Any
    spec: RegionSpec | None
    check_claimable: Callable[[], None]
    find: FindRegion
    indexes: FindIndexes
    last_indexes: FindIndexes
    options: WriterOptions
    budget: MemoryBudget
    submit: Callable[[Callable[[], None]], None]
    merged: Callable[[UUID], int]
    lost: Callable[[RepairError], None]
    buffered: Callable[[bool], None]
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    order: AbstractContextManager[object] = field(default_factory=RLock)

    def claimer(self, spec: RegionSpec, values: RegionValues) -> OpenRegion:
        """A function that claims the region with these values, and creates it if needed."""
        manifest = self.find(spec.spec_id, values) or _new_region(self.context, spec, values)
        return partial(self._claim, manifest, values)

    def manual_claimer(self, name: str) -> OpenRegion:
        """A function that claims the region of this name or UUID, and creates it if needed."""
        try:
            id_ = UUID(name)
        except ValueError:
            if not name:
                raise InvalidCallError("region='' is not a name: give a name or a UUID") from None
            id_ = region_id(self.context.incarnation, MANUAL_SPEC_ID, {"name": name})
        manifest = RegionManifest(region_id=id_, version=0, region_spec_id=MANUAL_SPEC_ID)
        with suppress(NotFoundError):
            existing = RegionManifests(self.context.store, id_).latest()
            manifest = _checked(existing, manifest)
        return partial(self._claim, manifest, None)

    def _claim(self, manifest: RegionManifest, values: RegionValues | None) -> RegionWriter:
        """Claim a region by its manifest: one that was read or recorded, or its first one."""
        types = None if self.spec is None else value_types(self.spec)
        region, info = manifest.region_id, self.info
        manifests = RegionManifests(self.context.store, region, types)
        stored = entry_schema(info.schema, self.base.lance_schema)
        wal = Wal(self.context.store, region, stored)
        make = memtables_of(info, region_name(region, values), self._texts)
        won = self._won(manifests, wal, make, manifest, values)
        return RegionWriter(
            claim=won.claim,
            replayed=won.memtables,
            make_memtable=make,
            wal=WalWriter(
                wal,
                region,
                won.claim.epoch,
                won.next_position,
                stored,
                self.options.flushed_within_s,
            ),
            make_flusher=lambda writer: RegionFlusher(
                claim=won.claim,
                manifests=manifests,
                write=self._write,
                submit=self.submit,
                attempts=self.options.flush_attempts,
                committed=writer.flushed,
                failed=partial(self._failed, writer),
                check=self._check,
                merged=partial(self.merged, region),
                sleep=self.sleep,
            ),
            options=self.options,
            order=self.order,
            budget=self.budget,
            buffered=self.buffered,
            clock=self.clock,
        )

    def _won(
        self,
        manifests: RegionManifests,
        wal: Wal,
        make: MakeMemTable,
        manifest: RegionManifest,
        values: RegionValues | None,
    ) -> Claim:
        merged = self.merged(manifest.region_id)
        if merged and not manifest.version:  # it is not new, and was looked for before the merge
            try:
                manifest = _checked(manifests.latest(), manifest)
            except NotFoundError as error:
                raise beyond(manifest.region_id, merged, manifest.current_generation) from error
        newest: RegionManifest | None = manifest
        if not manifest.version:
            outcome = claim_new(manifests, wal, self._check, manifest)
            if isinstance(outcome, Claim):
                return outcome
            newest = _checked(outcome, manifest)
        elif not manifest.message:  # a recorded manifest lacks fields that a commit needs
            newest = None
        return claim(manifests, wal, make, self._check, values, newest, merged)

    def _write(self, region: UUID, generation: int, rows: pa.Table) -> FlushedGeneration:
        writer = GenerationWriter(self.context, self.info, self.base, self.indexes)
        with self.budget.copy(rows.nbytes):  # Lance encodes a copy
            return writer.write(region, generation, rows)

    def _failed(self, writer: RegionWriter, error: MemWalError) -> None:
        if isinstance(error, TableReplacedError):
            self.lost(error)  # first: the writer wakes callers that wait for the flush
        writer.flush_failed(error)

    def _check(self) -> None:
        try:
            self.context.check_writes()
        except UnknownFormatError as error:
            self.lost(error)
            raise

    def _texts(self) -> list[tuple[str, Analyzer]]:
        """The columns with a maintained full-text index."""
        infos = (recipe.info for recipe in self.last_indexes())
        return [(info.column, Analyzer.of(info.parameters)) for info in infos if info.is_text]


def create_region(context: TableContext, spec: RegionSpec, values: RegionValues) -> RegionManifest:
    """The manifest of the region with these values, which no listing has shown: the region is
    created unless another process does so now (protocol rule 11)."""
    manifest = _new_region(context, spec, values)
    manifests = RegionManifests(context.store, manifest.region_id, value_types(spec))
    return _checked(manifests.create(manifest), manifest)


def _new_region(context: TableContext, spec: RegionSpec, values: RegionValues) -> RegionManifest:
    """The first manifest of a new region."""
    region = new_region_id(context.incarnation, spec, values)
    return RegionManifest(
        region_id=region, version=0, region_spec_id=spec.spec_id, region_values=values
    )


def _checked(existing: RegionManifest, manifest: RegionManifest) -> RegionManifest:
    # LanceDB leaves the values out, as its ids say them.
    spec_id, values = (
        existing.region_spec_id,
        existing.region_values or manifest.region_values or {},
    )
    if (spec_id, dict(values)) != (manifest.region_spec_id, dict(manifest.region_values or {})):
        raise RepairError(
            f"region {manifest.region_id} should belong to spec {manifest.region_spec_id} with "
            f"values {manifest.region_values}, but its manifest says spec {spec_id} and {values}"
        )
    return existing
