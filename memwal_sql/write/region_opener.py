"""Finds or creates a region and becomes its writer (protocol rules 4 and 11)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import RLock
from typing import Any
from uuid import UUID

import pyarrow as pa

from exec_nodes.arrow.text_columns import text_paths
from exec_nodes.base.lazy import lazy_property
from exec_nodes.base.transient_threads import TransientThreads
from exec_nodes.postings.analyzer import Analyzer
from memwal_sql.errors import (
    CorruptFileError,
    FencedError,
    InvalidCallError,
    NotFoundError,
    RepairError,
    UnknownFormatError,
)
from memwal_sql.state import open_writers
from memwal_sql.state.context import TableContext
from memwal_sql.state.generation_writer import FindIndexes, GenerationWriter
from memwal_sql.state.replay import MakeMemTable, memtables_of
from memwal_sql.storage.objects.concurrent import SharedCall
from memwal_sql.storage.region.manifest import FlushedGeneration, RegionManifest
from memwal_sql.storage.region.progress import beyond
from memwal_sql.storage.region.values import value_types
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.storage.wal.entry import entry_schema
from memwal_sql.storage.wal.log import Wal
from memwal_sql.write.back_pressure import MemoryBudget
from memwal_sql.write.claim import (
    ClaimedFirstError,
    ClaimedRegion,
    ReplayedLog,
    claim,
    claim_new,
    read_log,
)
from memwal_sql.write.flusher import RegionFlusher
from memwal_sql.write.options import WriterOptions
from memwal_sql.write.region_writer import RegionWriter
from memwal_sql.write.router import RegionValues, active_spec
from memwal_sql.write.turns import Tenure
from memwal_sql.write.wal_writer import WalWriter
from planner.model import TableInfo
from planner.regions.ids import new_region_id, region_id
from planner.regions.spec import MANUAL_SPEC_ID, RegionSpec
from planner.regions.values import region_name

FindRegions = Callable[[int, Sequence[RegionValues]], list[RegionManifest | None]]


@dataclass(frozen=True, kw_only=True)
class WrittenTable:
    """A table as its writers know it, and what they ask about it.

    Attributes:
        info: its columns, primary key and region specs when the writer was opened.
        base: the base table's format, or its Lance dataset, whose field ids stored rows carry.
        find: gives the manifests of the regions with a spec id and values, None for those that do
            not exist; called before regions are created.
        check_claimable: raises if no region may be claimed now; a caller that claims several calls
            it once their `claimers` are there.
        check_base: raises if nobody would read the rows of a call; called before they are
            enqueued, so it must be quick.
        regions: gives the spec and the values of all regions; for serializable statements.
        indexes: gives the recipes of the base table's maintained indexes; called at every flush,
            as indexes may have been made meanwhile.
        last_indexes: gives their last result without a request; called for every MemTable.
        merged: gives the last generation of a region in the base version read last.
    """

    context: TableContext
    info: TableInfo
    base: Any
    find: FindRegions
    check_claimable: Callable[[], None] = lambda: None
    check_base: Callable[[], None] = lambda: None
    regions: Callable[[], Sequence[tuple[int, RegionValues | None]]] = tuple
    indexes: FindIndexes = tuple
    last_indexes: FindIndexes = tuple
    merged: Callable[[UUID], int] = lambda _: 0

    @lazy_property
    def spec(self) -> RegionSpec | None:
        """The region spec that rows are divided by; None for manual regions."""
        return active_spec(self.info)

    @lazy_property
    def stored(self) -> pa.Schema:
        """The columns of entries, with their field ids."""
        return entry_schema(self.info.schema, self.base.lance_schema)

    def check_region(self, region: str | None) -> None:
        """Raise InvalidCallError unless a region is named where rows do not say theirs."""
        if region is not None and not isinstance(region, str):
            raise InvalidCallError(f"region={region!r} must be a name or a UUID as text")
        if region is None and self.spec is None:
            raise InvalidCallError(
                "the regions of this table are manual: name the one to write, as in "
                'table.writer(region="orders-eu")'
            )
        if region is not None and self.spec is not None:
            raise InvalidCallError(
                f"region={region!r} can't be chosen: region spec {self.spec.spec_id} of the table "
                "determines it from the row"
            )


@dataclass(frozen=True, kw_only=True)
class RegionOpener:
    """Opens writers of a table's regions, with the state that they share: the memory for unflushed
    rows, threads for flushes, and the lock that is held while rows are enqueued.

    `lost` is called when a region finds that the table is another one now, or that this package has
    become too old to write it.
    """

    table: WrittenTable
    options: WriterOptions
    flushes: TransientThreads
    lost: Callable[[RepairError], None] = lambda _: None
    buffered: Callable[[bool], None] = lambda _: None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    enqueue_lock: AbstractContextManager[object] = field(default_factory=RLock)

    @lazy_property
    def budget(self) -> MemoryBudget:
        """The memory of unflushed rows."""
        options, attributes = self.options, {"table": self.table.context.store.uri}
        limit, timeout = options.most_unflushed_bytes, options.back_pressure_timeout_s
        return MemoryBudget(limit, timeout, self.clock, attributes)

    @lazy_property
    def _indexes(self) -> FindIndexes:
        # Indexes that are being made now are left to the next generation.
        return SharedCall(self.table.indexes)

    def claimers(self, spec: RegionSpec, regions: Sequence[RegionValues]) -> list[RegionClaimer]:
        """Claimers of the regions with these values, in their order. The claim of a region that is
        not there creates it."""
        return [
            RegionClaimer(self, manifest or _new_region(self.table.context, spec, values), values)
            for manifest, values in zip(
                self.table.find(spec.spec_id, regions), regions, strict=True
            )
        ]

    def manual_claimer(self, name: str) -> RegionClaimer:
        """Claims the region of this name or UUID, and creates it if needed."""
        try:
            id_ = UUID(name)
        except ValueError:
            if not name:
                raise InvalidCallError("region='' is not a name: give a name or a UUID") from None
            id_ = region_id(self.table.context.incarnation, MANUAL_SPEC_ID, {"name": name})
        manifest = RegionManifest(region_id=id_, version=0, region_spec_id=MANUAL_SPEC_ID)
        with suppress(NotFoundError):
            existing = RegionManifests(self.table.context.store, id_).latest()
            manifest = _checked(existing, manifest)
        return RegionClaimer(self, manifest, None)

    def wal(self, region: UUID) -> Wal:
        """The log of a region."""
        return self.table.context.wal(region, self.table.stored)

    def manifests(self, region: UUID) -> RegionManifests:
        """The manifests of a region."""
        spec = self.table.spec
        types = None if spec is None else value_types(spec)
        return RegionManifests(self.table.context.store, region, types)

    def memtables(self, region: UUID, values: RegionValues | None) -> MakeMemTable:
        """Makes the MemTables of a region."""
        return memtables_of(self.table.info, region_name(region, values), self._texts)

    def check(self) -> None:
        """Raise UnknownFormatError if this package has become too old to write the table."""
        try:
            self.table.context.check_writes()
        except UnknownFormatError as error:
            self.lost(error)
            raise

    def writer(self, won: ClaimedRegion, values: RegionValues | None) -> RegionWriter:
        """The writer of a region that was claimed."""
        region = won.claim.region_id
        manifests, wal = self.manifests(region), self.wal(region)
        return RegionWriter(
            claim=won.claim,
            replayed=won.memtables,
            make_memtable=self.memtables(region, values),
            wal=WalWriter(
                wal,
                region,
                won.claim.epoch,
                won.next_position,
                self.table.stored,
                self.options.flushed_within_s,
                not self.options.takes_turns,
                won.notes,
            ),
            flusher=RegionFlusher(
                claim=won.claim,
                manifests=manifests,
                write=self._write,
                submit=self.flushes.submit,
                attempts=self.options.flush_attempts,
                lost=self.lost,
                check=self.check,
                merged=partial(self.table.merged, region),
                sleep=self.sleep,
            ),
            options=self.options,
            enqueue_lock=self.enqueue_lock,
            budget=self.budget,
            buffered=self.buffered,
            clock=self.clock,
        )

    def _write(self, region: UUID, generation: int, rows: pa.Table) -> FlushedGeneration:
        table = self.table
        writer = GenerationWriter(table.context, table.info, table.base, self._indexes)
        with self.budget.copy(rows.nbytes):  # Lance encodes a copy
            return writer.write(region, generation, rows)

    def _texts(self) -> list[tuple[str, Analyzer]]:
        """The paths of texts with a maintained full-text index."""
        infos = (recipe.info for recipe in self.table.last_indexes())
        paths = text_paths(self.table.info.schema)
        texts = (info for info in infos if info.is_text and info.column in paths)
        return [(info.column, Analyzer.of(info.parameters)) for info in texts]


class RegionClaimer:
    """Becomes the writer of one region, again and again: it reads the log, and follows it while
    another process has the region."""

    def __init__(
        self, opener: RegionOpener, manifest: RegionManifest, values: RegionValues | None
    ) -> None:
        """`manifest` was read or recorded, or is to be the region's first."""
        region = manifest.region_id
        self._opener, self._manifest, self._values = opener, manifest, values
        self._seen_epoch = manifest.writer_epoch
        self._wal, self._manifests = opener.wal(region), opener.manifests(region)
        self._make = opener.memtables(region, values)
        self._writer: RegionWriter | None = None
        self._log: ReplayedLog | None = None
        self._log_was_read = False
        self._most_epoch: int | None = None  # the last claim that was seen, if one is waited for
        self._claim_met = 0, 0.0  # the epoch of the last claim by others, and when

    @property
    def order(self) -> tuple[str, str, str]:
        """Its place among the regions that are claimed in one turn."""
        return (*self._opener.table.context.identity, str(self._manifest.region_id))

    def tenure(self) -> Tenure | None:
        """What another process does with the region, whose log is followed from now on; None if no
        other process has it. Raises as `claim` does."""
        if not self._existing().version:
            return None
        log = self._log = self._read()
        self._most_epoch = log.epoch
        own = open_writers.last_epoch(self._opener.table.context.identity, self._manifest.region_id)
        if log.epoch <= own:
            return None
        if log.epoch > self._claim_met[0]:
            self._claim_met = log.epoch, self._opener.clock()
        since = self._claim_met[1]
        return Tenure(log.epoch, log.end, log.modified, not log.replayed.fence_is_last, since)

    def writer(self) -> RegionWriter:
        """The writer of the last claim, or of another one if something has stopped it, such as a
        claim of others. Raises as `claim` does."""
        if self._writer is not None:
            self._writer.probe()
            if self._writer.is_usable:
                return self._writer
            self._log = self._read()
        return self.claim()

    def claim(self) -> RegionWriter:
        """Claim the region, and create it if needed; again, if the last claim failed or its writer
        has handed the region over. Raises as `write.claim.claim` does."""
        manifest, opener = self._existing(), self._opener
        if not manifest.version:
            outcome = claim_new(
                self._manifests, self._wal, opener.check, manifest, opener.table.check_claimable
            )
            if isinstance(outcome, ClaimedRegion):
                return self._won(outcome)
            self._manifest = manifest = _checked(outcome, manifest)
            if opener.options.turns:
                raise FencedError(f"region {manifest.region_id} was created by another writer")
        # A recorded manifest lacks fields that a commit needs.
        newest = manifest if manifest.message and not self._log_was_read else None
        log = self._log_to_claim()
        try:
            won = claim(
                self._manifests,
                self._wal,
                self._make,
                opener.check,
                self._values,
                newest,
                opener.table.merged(manifest.region_id),
                log,
                opener.table.check_claimable,
                self._seen_epoch,
                self._most_epoch,
            )
        except ClaimedFirstError:
            self._log = log
            raise
        return self._won(won)

    def _won(self, won: ClaimedRegion) -> RegionWriter:
        self._manifest, self._log_was_read = won.claim.manifest, True
        self._seen_epoch = -1
        self._writer = self._opener.writer(won, self._values)
        return self._writer

    def _existing(self) -> RegionManifest:
        """The manifest; a region with merged rows is not new, and was looked for before that."""
        region = self._manifest.region_id
        merged = self._opener.table.merged(region)
        if merged and not self._manifest.version:
            try:
                self._manifest = _checked(self._manifests.latest(), self._manifest)
            except NotFoundError as error:
                raise beyond(region, merged, self._manifest.current_generation) from error
        return self._manifest

    def _read(self) -> ReplayedLog:
        """The log up to its end."""
        log = self._take_log()
        if log is not None:
            with suppress(CorruptFileError):  # it was flushed and collected, or is read below
                log.follow(self._wal)
                self._log_was_read = True
                return log
        newest = self._manifest
        if self._log_was_read or not newest.message:
            newest = self._manifests.latest()
        return read_log(self._manifests, self._wal, newest, self._make)

    def _log_to_claim(self) -> ReplayedLog | None:
        """The log above the newest manifest; None if it is to be read."""
        log = self._take_log()
        if log is None or not self._log_was_read:
            return log
        return log.above(self._manifests.newer(log.manifest) or log.manifest)

    def _take_log(self) -> ReplayedLog | None:
        """The log as far as it was read: by this, or by a writer that has handed the region over.
        It can be taken once, as nobody knows how far it was read by what has failed."""
        log, writer = self._log, self._writer
        self._log = self._writer = None
        if writer is None:
            return log
        self._claim_met = writer.epoch + 1, writer.fenced_at
        return writer.replayed_log(self._wal)


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
