"""Publishing a batch that tasks have staged (protocol rule 24).

The publisher is a writer like any other: it claims the regions, so a writer that is alive elsewhere
is fenced and says so. It never claims a region a second time within one batch: who is fenced in the
middle of one reports it. Claims are kept from batch to batch for as long as nobody else takes the
regions, so that a stream leaves one fence and not one a batch. A commit of generations ends its
claim: the next epoch shows transactions that began before it that the region was written.

What the table has decides about some rows: whether they replace it, and the values of columns that
they lack. It is read between the claims and the first row that is written, so that it is exact.

Few rows of a region become one WAL entry with the batch's mark, which is an intent if all regions
of the batch have few rows. Many become generations, in one manifest commit with the mark; what the
WAL holds by then is flushed first, so that generations follow each other.

Publishers of one table take turns, by a lease of their own, so that two streams into it wait for
each other instead of fencing each other. The turn is courtesy: what keeps rows right is the claim
of each region.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from uuid import UUID, uuid4

import pyarrow as pa

from exec_nodes.base.tasks import map_in_threads
from exec_nodes.base.transient_threads import TransientThreads
from exec_nodes.evolution.differences import differences
from exec_nodes.evolution.match import FIELD_ID_KEY
from exec_nodes.evolution.project import same_columns
from memwal_sql.bulk.read import (
    PARALLEL,
    LogLimits,
    RegionBatch,
    StagedRegion,
    over_stored,
    staged_regions,
)
from memwal_sql.bulk.stage import StagedPiece, StagedTask, check_table
from memwal_sql.bulk.stored import Get, StoredRows
from memwal_sql.bulk.unchanged import RowsRead
from memwal_sql.errors import (
    ConflictError,
    FencedError,
    InvalidCallError,
    ReopenError,
    StoreUnavailableError,
    WriterFailedError,
)
from memwal_sql.life_log import life_log
from memwal_sql.maintain.lease import PUBLISHING, maintenance_lease
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.batch_marks import BatchMark, complete, last_complete, transaction_id
from memwal_sql.state.context import TableContext
from memwal_sql.state.open_writers import note_claim
from memwal_sql.storage import paths
from memwal_sql.storage.base.commits import half_done
from memwal_sql.storage.base.indexes import IndexRecipe
from memwal_sql.storage.generation.write import random_hex
from memwal_sql.storage.records.transactions import TransactionRecord, Transactions, free_id
from memwal_sql.storage.region.manifest import FlushedGeneration, RegionManifest
from memwal_sql.storage.wal.entry import TOMBSTONE
from memwal_sql.write.commit import Share, Together, commit
from memwal_sql.write.coordinator import AtomicWrite, Description
from memwal_sql.write.ingest.missing import ERROR
from memwal_sql.write.options import WriterOptions
from memwal_sql.write.region_opener import (
    FindRegions,
    RegionClaimer,
    RegionOpener,
    WrittenTable,
)
from memwal_sql.write.region_writer import RegionWriter
from memwal_sql.write.router import RegionKey, active_spec
from planner.model import TableInfo
from planner.regions.spec import RegionSpec

_log = life_log(__name__)

_Lacking = list[tuple[StagedRegion, RegionWriter]]


@dataclass(frozen=True, slots=True)
class PublishResult:
    """`rows` of a batch were published into so many `regions`, or `skipped`, as the table has newer
    ones; 0 when the regions had the batch already."""

    rows: int
    regions: int
    skipped: int = 0


class Publisher:
    """Publishes batches into one table, one after the other. Keeps its claims between them."""

    def __init__(
        self,
        *,
        context: TableContext,
        base: Callable[[], BaseTable],
        find: FindRegions,
        get: Get,
    ) -> None:
        """`base` gives the newest version of the base table, `find` the manifests of the regions
        with a spec id and values, None for those that do not exist, `get` the live rows of keys."""
        self._context = context
        self._base = base
        self._find = find
        self._get = get
        self._flushes = TransientThreads(PARALLEL, f"flushes of {context.uri}")
        self._stored: pa.Schema | None = None
        self._regions: dict[RegionKey, RegionClaimer] = {}

    def publish(
        self,
        tasks: Sequence[StagedTask],
        mark: BatchMark | None = None,
        read: RowsRead | None = None,
        operation: str | None = None,
    ) -> PublishResult:
        """Make what the tasks staged part of the table: as one transaction, if all of it goes
        through the WAL, else region by region.

        Rows of a statement that has `read` the table are compared with it first: ConflictError if
        others have written one of their keys since, KeysExistError for a new row whose key was
        there, UnsupportedError where rows get other keys and can't be one transaction; nothing is
        written then. `operation` is said by the transaction's record.

        With a mark, a batch that the table has already changes nothing, and one that a crash has
        cut through is completed. Raises InvalidCallError, before anything is published, when
        several rows have the same key and nothing orders them, and ReopenError when since they were
        staged the table was made anew, its region spec changed or columns were added, unless they
        may lack some; FencedError when another writer takes a region meanwhile. After any error
        nothing is known of the batch but that publishing it again is right.
        """
        context = self._context
        if mark is not None and mark.batch_id <= last_complete(context.store, mark.query_id):
            return PublishResult(0, 0)
        check_table(context, tasks)
        base = self._base()
        self._check_spec(base.info, tasks)
        self._check_known(base, tasks)
        staged = staged_regions(context, base, tasks)
        parts = [part for part in staged if part.batch.rows]

        with maintenance_lease(context.store, f"publishing {mark or uuid4().hex}", name=PUBLISHING):
            context.check_writes()
            done = self._publish(base, parts, mark, read, operation)
        skipped = sum(part.skipped for part in done)
        rows = sum(part.rows for part in done) - skipped
        if skipped:
            what = "of a batch" if mark is None else f"of batch {mark}"
            _log.info("%s: %d rows %s do not replace the table's", context.uri, skipped, what)
        if mark is not None:
            complete(context.store, mark, rows)
        return PublishResult(rows, len(done), skipped)

    def empty_wals(self, regions: Sequence[RegionManifest]) -> dict[UUID, int]:
        """Claim regions, also those given by hand, and flush what their WALs hold; the epoch of
        each claim."""

        def empty(region: RegionClaimer) -> tuple[UUID, int]:
            writer = self._claimed(region)
            self._flush(writer)
            return writer.region_id, writer.epoch

        return dict(map_in_threads(empty, self._claimers(regions), PARALLEL))

    def take_regions(self, regions: Sequence[RegionManifest]) -> None:
        """Claim regions, so that writers that have them stop, or claim them again. One that
        somebody claims meanwhile is left to that claim."""

        def take(region: RegionClaimer) -> None:
            with suppress(FencedError):
                self._claimed(region)

        map_in_threads(take, self._claimers(regions), PARALLEL)

    def _publish(
        self,
        base: BaseTable,
        parts: Sequence[StagedRegion],
        mark: BatchMark | None,
        read: RowsRead | None,
        operation: str | None,
    ) -> Sequence[StagedRegion]:
        """Claim the regions, and publish; the parts that were published now."""
        self._find_regions(base, parts)
        regions = [self._regions[part.key] for part in parts]
        writers = map_in_threads(self._claimed, regions, PARALLEL)
        if read is not None:
            read.check(self._base(), parts, writers, self._get)
        stored = StoredRows(base.info, self._get)
        unwritten = [
            (part, writer)
            for part, writer in zip(parts, writers, strict=True)
            if mark is None or writer.published(mark.query_id) < mark.batch_id
        ]
        compared = over_stored([part for part, _ in unwritten], stored)
        lacking = [(part, writer) for part, (_, writer) in zip(compared, unwritten, strict=True)]
        few = all(part.batch.goes_through_log for part in parts)
        entries = _entries(lacking) if few else None
        most = Together.most_regions if self._context.takes_transactions else 1
        if read is not None and (entries is None or len(entries) > most):
            read.check_apart(parts)
        if entries is not None:
            if not self._append(lacking, entries, mark, len(parts), operation):
                return ()
        else:
            with half_done(_PARTLY, StoreUnavailableError) if read is None else half_done(_CHANGED):
                map_in_threads(lambda pair: self._add(*pair, mark), lacking, PARALLEL)
        for _, writer in lacking:
            self._wait_flushed(writer)
        return [part for part, _ in lacking]

    def _find_regions(self, base: BaseTable, parts: Sequence[StagedRegion]) -> None:
        if self._stored is None or not base.stored.equals(self._stored, check_metadata=True):
            self._regions, self._stored = {}, base.stored
        missing = {part.key: part.values for part in parts if part.key not in self._regions}
        if missing:
            spec, opener = routing_spec(base.info), self._opener_over(base)
            claimers = opener.claimers(spec, list(missing.values()))
            # Who changes columns after this claims these regions, which their epochs show.
            opener.table.check_claimable()
            self._regions.update(zip(missing, claimers, strict=True))

    def _append(
        self,
        lacking: _Lacking,
        entries: Sequence[pa.RecordBatch],
        mark: BatchMark | None,
        parts: int,
        operation: str | None,
    ) -> bool:
        """Write the rows of parts through the WAL, of a batch that has so many; False if an earlier
        attempt has written them."""
        context = self._context
        description = Description(staged=mark, operation=operation)
        if mark is not None and parts > 1 and context.takes_transactions:
            # The claims have decided over attempts that were cut off.
            free = free_id(Transactions(context.store), transaction_id(mark))
            if isinstance(free, TransactionRecord):
                return False
            description = Description(free, operation=f"batch {mark}", staged=mark)
        shares = [
            Share(context, writer, rows)
            for (_, writer), rows in zip(lacking, entries, strict=True)
            if rows.num_rows
        ]
        writes = commit(shares, description)
        if isinstance(writes, AtomicWrite):
            writes.land()
        else:
            with half_done(_PARTLY, StoreUnavailableError):
                map_in_threads(lambda entry: entry[0].land(entry[1]), writes, PARALLEL)
        return True

    def _add(self, part: StagedRegion, writer: RegionWriter, mark: BatchMark | None) -> None:
        """Publish a part of a batch on its own."""
        rows = part.batch.read() if part.batch.goes_through_log else None
        if rows is not None:
            writer.append(rows, mark)
        else:
            self._flush(writer)
            writer.add_generations(partial(self._generations, writer, part.batch), mark)
            note_claim(self._context.identity, writer.region_id, writer.epoch + 1)

    def _generations(
        self, writer: RegionWriter, batch: RegionBatch, number: int
    ) -> list[FlushedGeneration]:
        """The generations of a part of a batch, from a number on."""
        numbers = count(number)
        placed = [self._place(writer.region_id, piece, next(numbers)) for piece in batch.whole]
        return [*placed, *(writer.write(next(numbers), rows) for rows in batch.tables())]

    def _place(self, region: UUID, piece: StagedPiece, generation: int) -> FlushedGeneration:
        """Give a staged generation its number, which is part of its folder's name."""
        name = paths.generation_name(random_hex(), generation)
        self._context.store.move(str(piece.folder), paths.generation_folder(region, name))
        return FlushedGeneration(generation, name, piece.size, piece.rows, piece.bloom_checksum)

    def _flush(self, writer: RegionWriter) -> None:
        writer.seal()
        self._wait_flushed(writer)

    def _wait_flushed(self, writer: RegionWriter) -> None:
        """Return when no MemTable of a writer but the last one is unflushed."""
        self._flushes.make_queued()
        try:
            writer.wait_flushed()
        except WriterFailedError as error:  # the caller has no writer that could be opened again
            raise _reason(error) from error

    def _claimed(self, region: RegionClaimer) -> RegionWriter:
        writer = region.writer()
        note_claim(self._context.identity, writer.region_id, writer.epoch)
        return writer

    def _claimers(self, regions: Sequence[RegionManifest]) -> list[RegionClaimer]:
        opener = self._opener_over(self._base())
        return [RegionClaimer(opener, region, region.region_values) for region in regions]

    def _opener_over(self, base: BaseTable) -> RegionOpener:
        table = WrittenTable(
            context=self._context,
            info=base.info,
            base=base.dataset,
            find=self._find,
            check_claimable=partial(self._check_columns, base.stored),
            indexes=self._recipes,
            merged=lambda region: base.details.merged_generations.get(region, 0),
        )
        options = WriterOptions(indexed=False, turns=False, memtable_rows=max(1, LogLimits.rows))
        return RegionOpener(table=table, options=options, flushes=self._flushes)

    def _check_columns(self, stored: pa.Schema) -> None:
        now = self._base().stored
        if not same_columns(now, stored):
            raise ConflictError(
                f"the columns of {self._context.uri} have just changed "
                f"({differences(stored, now)}): call this again"
            )

    def _check_spec(self, info: TableInfo, tasks: Sequence[StagedTask]) -> None:
        spec_id = routing_spec(info).spec_id
        if any(task.pieces and task.spec_id != spec_id for task in tasks):
            raise ReopenError(
                f"the region spec of {self._context.uri} has changed since these rows were staged: "
                "nothing was written, run the job again"
            )

    def _check_known(self, base: BaseTable, tasks: Sequence[StagedTask]) -> None:
        """Raise ReopenError if the table has columns that a task did not know: others may have
        filled them, and its whole rows would put nulls over their values; or its rows are ordered
        by such a column, and bring nothing by which they are compared with the table's."""
        now = pa.schema([field for field in base.stored if field.name != TOMBSTONE])
        for task in tasks:
            if task.columns is None:
                continue
            known = pa.schema([f for f in now if f.metadata[FIELD_ID_KEY] in task.columns])
            compares = task.form.over(base.info).when != task.form.when
            is_late = compares and task.form.order_by not in known.names
            if is_late or (task.form.missing == ERROR and len(known) < len(now)):
                raise ReopenError(
                    f"the columns of {self._context.uri} have changed since these rows were staged "
                    f"({differences(known, now)}): nothing was written, run the job again"
                )

    def _recipes(self) -> Sequence[IndexRecipe]:
        return self._base().indexes.recipes()


def _entries(lacking: _Lacking) -> list[pa.RecordBatch] | None:
    """The rows of parts that become WAL entries; None if some are too large for that."""
    read = map_in_threads(lambda pair: pair[0].batch.read(), lacking, PARALLEL)
    entries = [rows for rows in read if rows is not None]
    return entries if len(entries) == len(read) else None


_PARTLY = "some regions may have their rows; publish them again"
_CHANGED = (
    "some regions may have the rows of this statement: read them back, as running it again would "
    "change those twice"
)


def _reason(error: BaseException) -> BaseException:
    """What has made a flush fail."""
    while isinstance(error, WriterFailedError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def routing_spec(info: TableInfo) -> RegionSpec:
    """The region spec that rows are divided by. Raises InvalidCallError for manual regions."""
    spec = active_spec(info)
    if spec is None:
        raise InvalidCallError(
            "the regions of this table are manual, so nothing says which one a row belongs "
            "to: write it with table.writer(region=...)"
        )
    return spec
