"""Publishing a batch that tasks have staged: one publisher a region (protocol rule 24).

Publishers of one table take turns, by a lease of their own, so that two streams into it wait for
each other instead of fencing each other. The turn is courtesy: what keeps rows right is the claim
of each region.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from uuid import UUID, uuid4

import pyarrow as pa

from exec_nodes.base.tasks import map_in_threads
from exec_nodes.evolution.differences import differences
from exec_nodes.evolution.match import FIELD_ID_KEY
from exec_nodes.evolution.project import same_columns
from memwal_sql.bulk.publish_region import PublishLimits, RegionPublisher
from memwal_sql.bulk.read import PARALLEL, StagedRegion, staged_regions
from memwal_sql.bulk.stage import StagedTask
from memwal_sql.errors import (
    ConflictError,
    FencedError,
    InvalidCallError,
    ReopenError,
    StoreUnavailableError,
)
from memwal_sql.maintain.lease import PUBLISHING, maintenance_lease
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.batch_marks import BatchMark, complete, last_complete, transaction_id
from memwal_sql.state.context import TableContext
from memwal_sql.state.open_writers import note_claim
from memwal_sql.state.replay import memtables_of
from memwal_sql.storage.base.commits import half_done
from memwal_sql.storage.base.indexes import IndexRecipe
from memwal_sql.storage.records.transactions import (
    MOST_PARTS,
    TransactionRecord,
    Transactions,
    free_id,
)
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.values import value_types
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.storage.wal.entry import TOMBSTONE
from memwal_sql.write.coordinator import AtomicWrite, Description, Participant
from memwal_sql.write.generation_writer import GenerationWriter
from memwal_sql.write.region_opener import FindRegions, create_region
from memwal_sql.write.router import RegionKey, RegionValues, active_spec
from planner.model import TableInfo
from planner.regions.spec import RegionSpec
from planner.regions.values import region_name


@dataclass(frozen=True, slots=True)
class PublishResult:
    """`rows` of a batch were published into so many `regions`; 0 and 0 when they had it already."""

    rows: int
    regions: int


class Publisher:
    """Publishes batches into one table, one after the other. Keeps its claims between them."""

    def __init__(
        self,
        *,
        context: TableContext,
        base: Callable[[], BaseTable],
        find: FindRegions,
    ) -> None:
        """`base` gives the newest version of the base table, `find` the manifests of the regions
        with a spec id and values, None for those that do not exist."""
        self._context = context
        self._base = base
        self._find = find
        self._limits = PublishLimits()
        self._regions: dict[RegionKey, RegionPublisher] = {}
        self._stored = base().stored

    def publish(self, tasks: Sequence[StagedTask], mark: BatchMark | None = None) -> PublishResult:
        """Make what the tasks staged part of the table: as one transaction, if all of it goes
        through the WAL, else region by region.

        With a mark, a batch that the table has already changes nothing, and one that a crash has
        cut through is completed. Raises InvalidCallError, before anything is published, when two
        tasks have the same key and no order tells the newer one, and ReopenError when columns were
        added since they staged; FencedError when another writer takes a region meanwhile.
        """
        context = self._context
        if mark is not None and mark.batch_id <= last_complete(context.store, mark.query_id):
            return PublishResult(0, 0)
        base = self._base()
        if not base.stored.equals(self._stored, check_metadata=True):
            self._regions, self._stored = {}, base.stored
        self._check_known(base.stored, tasks)
        parts = staged_regions(context, base, tasks)

        with maintenance_lease(context.store, f"publishing {mark or uuid4().hex}", name=PUBLISHING):
            context.check_writes()
            self._open(base, [part for part in parts if part.key not in self._regions])
            done = self._together(parts, mark) if self._fit_one(parts) else self._each(parts, mark)
        rows = sum(part.rows for part in done)
        if mark is not None:
            complete(context.store, mark, rows)
        return PublishResult(rows, len(done))

    def _fit_one(self, parts: Sequence[StagedRegion]) -> bool:
        return (
            self._context.takes_transactions
            and 1 < len(parts) <= MOST_PARTS
            and all(part.batch.goes_through_wal(self._limits) for part in parts)
        )

    def _each(self, parts: Sequence[StagedRegion], mark: BatchMark | None) -> list[StagedRegion]:
        """Publish region by region; the parts that were published now."""

        def publish(part: StagedRegion) -> bool:
            return self._regions[part.key].publish(part.batch, mark)

        message = "some regions may have their rows; publish them again"
        with half_done(message, StoreUnavailableError):
            published = map_in_threads(publish, parts, PARALLEL)
        return [part for part, new in zip(parts, published, strict=True) if new]

    def _together(
        self, parts: Sequence[StagedRegion], mark: BatchMark | None
    ) -> list[StagedRegion]:
        """Publish as one transaction; the parts that were published now."""

        def begin(part: StagedRegion) -> pa.RecordBatch | None:
            region = self._regions[part.key]
            if not region.begin(mark):
                return None
            rows = next(part.batch.tables(), None)  # all of them, being few
            return None if rows is None else region.room_for(rows)

        try:
            batches = map_in_threads(begin, parts, PARALLEL)
            lacking = [pair for pair in zip(parts, batches, strict=True) if pair[1] is not None]
            if not lacking:
                return []
            # The claims have decided over attempts that were cut off.
            description = Description()
            if mark is not None:
                free = free_id(Transactions(self._context.store), transaction_id(mark))
                if isinstance(free, TransactionRecord):
                    return []
                description = Description(free, operation=f"batch {mark}")
            participants = [
                Participant(self._context, self._regions[part.key], batch)
                for part, batch in lacking
            ]
            AtomicWrite(participants, description).land()
        except BaseException:
            for part in parts:
                self._regions[part.key].forget_claim()
            raise
        return [part for part, _ in lacking]

    def empty_wals(self, regions: Sequence[RegionManifest]) -> dict[UUID, int]:
        """Claim regions, also those given by hand, and flush what their WALs hold; the epoch of
        each claim."""
        base = self._base()

        def empty(region: RegionManifest) -> int:
            return self._publisher(base, region, region.region_values).empty_wal()

        epochs = map_in_threads(empty, regions, PARALLEL)
        return dict(zip((region.region_id for region in regions), epochs, strict=True))

    def take_regions(self, regions: Sequence[RegionManifest]) -> None:
        """Claim regions, so that writers that have them stop, or claim them again. One that
        somebody claims meanwhile is left to that claim."""
        base = self._base()

        def take(region: RegionManifest) -> None:
            with suppress(FencedError):
                self._publisher(base, region, region.region_values).take()

        map_in_threads(take, regions, PARALLEL)

    def _open(self, base: BaseTable, parts: Sequence[StagedRegion]) -> None:
        spec = routing_spec(base.info)
        manifests = self._find(spec.spec_id, [part.values for part in parts])
        for part, found in zip(parts, manifests, strict=True):
            manifest = found or create_region(self._context, spec, part.values)
            self._regions[part.key] = self._publisher(base, manifest, part.values)
        if parts:  # who changes columns after this claims these regions, which their epochs show
            self._check_columns(base.stored)

    def _publisher(
        self, base: BaseTable, region: RegionManifest, values: RegionValues | None
    ) -> RegionPublisher:
        context, spec = self._context, active_spec(base.info)
        types = None if spec is None else value_types(spec)
        writer = GenerationWriter(context, base.info, base.dataset, self._recipes)
        return RegionPublisher(
            store=context.store,
            log=context.wal(region.region_id, base.stored),
            manifests=RegionManifests(context.store, region.region_id, types),
            make_memtable=memtables_of(base.info, region_name(region.region_id, values)),
            entry_schema=base.stored,
            write=writer.write,
            limits=self._limits,
            check=context.check_writes,
            merged=base.details.merged_generations.get(region.region_id, 0),
            check_columns=partial(self._check_columns, base.stored),
            seen_epoch=region.writer_epoch,
            values=values,
            claimed=partial(note_claim, context.identity, region.region_id),
        )

    def _check_columns(self, stored: pa.Schema) -> None:
        now = self._base().stored
        if not same_columns(now, stored):
            raise ConflictError(
                f"the columns of {self._context.uri} have just changed "
                f"({differences(stored, now)}): call this again"
            )

    def _check_known(self, stored: pa.Schema, tasks: Sequence[StagedTask]) -> None:
        """Raise ReopenError if the table has columns that a task did not know: others may have
        filled them, and its whole rows would put nulls over their values."""
        now = pa.schema([field for field in stored if field.name != TOMBSTONE])
        for task in tasks:
            ids = {field.metadata[FIELD_ID_KEY] for field in task.columns or now}
            if any(field.metadata[FIELD_ID_KEY] not in ids for field in now):
                raise ReopenError(
                    f"the columns of {self._context.uri} have changed since these rows were staged "
                    f"({differences(task.columns, now)}): nothing was written, run the job again"
                )

    def _recipes(self) -> Sequence[IndexRecipe]:
        return self._base().indexes.recipes()


def routing_spec(info: TableInfo) -> RegionSpec:
    """The region spec that rows are divided by. Raises InvalidCallError for manual regions."""
    spec = active_spec(info)
    if spec is None:
        raise InvalidCallError(
            "the regions of this table are manual, so nothing says which one a row belongs "
            "to: write it with table.writer(region=...)"
        )
    return spec
