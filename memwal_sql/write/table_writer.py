"""The writer that users have: it takes rows of any region and keeps one region writer for each.

Regions are claimed when the first row for them comes, and created on demand (protocol rule 11).
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from random import random
from threading import Lock, RLock
from typing import Any, NoReturn, Self
from uuid import UUID

import pyarrow as pa

from exec_nodes.arrow.row_stream import RowStream, opened
from exec_nodes.base.ticker import Ticks
from exec_nodes.base.transient_threads import TransientThreads
from memwal_sql.errors import (
    InvalidCallError,
    MemWalError,
    ReopenError,
    RepairError,
    UnsupportedError,
)
from memwal_sql.state import open_writers as live
from memwal_sql.state.context import TableContext
from memwal_sql.storage.objects.concurrent import SharedCall
from memwal_sql.storage.wal.entry import entry_schema
from memwal_sql.write.back_pressure import MemoryBudget
from memwal_sql.write.conditional.recent import Cut
from memwal_sql.write.conditional.resolve import LiveRows, ReadChanges, Resolver, RowChanges
from memwal_sql.write.coordinator import Description
from memwal_sql.write.generation_writer import FindIndexes
from memwal_sql.write.ingest.conditional_changes import conditional_changes
from memwal_sql.write.ingest.missing import ERROR, KEEP, MissingInInsert, MissingInUpsert
from memwal_sql.write.ingest.normalise import Normaliser, Rows
from memwal_sql.write.ingest.pieces import normalised
from memwal_sql.write.options import WriterOptions
from memwal_sql.write.region_opener import FindRegion, RegionOpener
from memwal_sql.write.region_writer import RegionWriter
from memwal_sql.write.region_writers import RegionWriters
from memwal_sql.write.result import DURABLE, WriteResult, reached
from memwal_sql.write.router import RegionValues, active_spec
from memwal_sql.write.statement import (
    SERIALIZABLE,
    SNAPSHOT,
    Isolation,
    Statements,
    check_isolation,
)
from memwal_sql.write.statement_writer import StatementWriter
from memwal_sql.write.turns import Turns
from planner.model import TableInfo

_PARALLEL_FLUSHES = {False: 2, True: 8}  # by whether the store is remote


class TableWriter:
    """Writes rows of one table. A context manager, safe to use from several threads.

    Within a region a call is written whole or not at all, up to the size of a MemTable; a larger
    one is written in pieces, and an error has a note of the pieces that were written. Each region
    of a call is written on its own, and an error names the written ones. Calls of one thread take
    effect in order.
    """

    def __init__(
        self,
        *,
        context: TableContext,
        info: TableInfo,
        base: Any,
        region_of: FindRegion,
        check_claimable: Callable[[bool], None] = lambda _: None,
        rows: LiveRows,
        regions: Callable[[], Sequence[tuple[int, RegionValues | None]]] = tuple,
        indexes: FindIndexes = tuple,
        last_indexes: FindIndexes = tuple,
        merged: Callable[[UUID], int] = lambda _: 0,
        region: str | None = None,
        options: WriterOptions | None = None,
        of_insert: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        random: Callable[[], float] = random,
    ) -> None:
        """
        Args:
            base: the base table's format, or its Lance dataset, whose field ids stored rows carry.
            check_claimable: raises if no region may be claimed now, or, if True is given, if none
                may be claimed again; called before a claim.
            region_of: gives the manifest of the region with this spec id and these values, if it
                exists; called before a region is created.
            rows: the table, for statements that read existing rows.
            regions: gives the spec and the values of all regions; for serializable statements.
            indexes: gives the recipes of the base table's maintained indexes; called at every
                flush.
            last_indexes: gives their last result without a request; called for every MemTable.
            merged: gives the last generation of a region in the base version read last.
            region: the name or UUID of the one region to write, for manual regions.
            of_insert: whether INSERT statements opened it, and not the program: they may close it.
        """
        options = options or WriterOptions()
        self._context = context
        self._options = options
        self._spec = active_spec(info)
        if region is not None and not isinstance(region, str):
            raise InvalidCallError(f"region={region!r} must be a name or a UUID as text")
        if region is None and self._spec is None:
            raise InvalidCallError(
                "the regions of this table are manual: name the one to write, as in "
                'table.writer(region="orders-eu")'
            )
        if region is not None and self._spec is not None:
            raise InvalidCallError(
                f"region={region!r} can't be chosen: region spec {self._spec.spec_id} of the table "
                "determines it from the row"
            )
        self._schema = info.schema
        self._normaliser = Normaliser(info.schema, info.primary_key)
        self._resolver = Resolver(info.schema, info.primary_key, self._normaliser, rows)
        self._budget = MemoryBudget(
            options.most_unflushed_bytes, options.back_pressure_timeout_s, clock
        )
        flushes = options.parallel_flushes or _PARALLEL_FLUSHES[context.store.remote]
        self._flushes = TransientThreads(flushes, "memwal-flush")
        self._wal_flushes = TransientThreads(1, "memwal-wal-flush")
        opener = RegionOpener(
            context=context,
            info=info,
            base=base,
            spec=self._spec,
            check_claimable=check_claimable,
            find=region_of,
            # Indexes that are being made now are left to the next generation.
            indexes=SharedCall(indexes),
            last_indexes=last_indexes,
            merged=merged,
            options=options,
            budget=self._budget,
            submit=self._flushes.submit,
            lost=self._lose,
            buffered=self._buffered,
            clock=clock,
            sleep=sleep,
        )
        turns = Turns(remote=context.store.remote, clock=clock, sleep=sleep, random=random)
        self._writers = RegionWriters(
            opener, region, self._check_open, turns if options.turns else None
        )
        statements = Statements(
            primary_key=info.primary_key,
            route=self._writers.route,
            claimed=lambda: list(self._writers),
            make_room=lambda size: self._budget.wait_for_room(size, self._relieve),
            retrying=Lock(),
            order=opener.order,
            context=context,
            durable=options.durable,
        )
        self._statements = StatementWriter(
            statements, self._writers, regions, self._spec is not None, options
        )
        self._close_lock = Lock()
        self._closed = False
        self._lost: RepairError | None = None
        self.pid = os.getpid()
        self.identity = context.identity
        self.columns = entry_schema(info.schema, base.lance_schema)
        self.of_insert = of_insert
        self._ticks = self._start_ticks()
        live.register_table(self)

    @property
    def routes(self) -> bool:
        return self._spec is not None

    @property
    def takes_turns(self) -> bool:
        """Whether it goes on with a region that another process took over."""
        return self._options.durable and self._options.turns

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def usable(self) -> bool:
        if self._closed or self._lost is not None:
            return False
        return all(writer.is_usable or writer.is_handed_over for writer in self._writers)

    def upsert(
        self,
        data: Any,
        *,
        missing: MissingInUpsert = KEEP,
        when: str | None = None,
        set: Mapping[str, str] | None = None,  # noqa: A002 (SQL's word)
        isolation: Isolation = SNAPSHOT,
        atomic: bool = False,
    ) -> WriteResult:
        """Insert rows, or replace those with the same primary key; if a key occurs twice, the last
        row wins.

        Args:
            data: any Arrow data, such as tables, readers, datasets and lists of batches, a pandas
                or polars frame, a dict of columns or a list of dicts. A stream (a reader, dataset,
                scanner or generator of batches) is read and written piece by piece: if a piece is
                refused or can't be read, the pieces before it stay written.
            missing: how to treat columns that `data` lacks. `"keep"`: existing rows keep their
                values, new ones get null. `"null"`: they become null, even in rows with a value.
                `"error"`: the call is refused.
            when: a SQL condition over an existing row, `t`, and the row given, `s`, such as
                `"t.updated_at <= s.updated_at"`: an existing row that does not meet it stays as it
                is. Rows with new keys are always inserted.
            set: SQL expressions over `t` and `s` by column, such as `{"n": "t.n + s.n"}`: the
                values for existing rows, in place of those given.
            isolation: `"serializable"` reads and computes everything again if anything was written
                meanwhile to the regions that were read; so in other methods.
            atomic: whether the rows of all regions become visible together, and none of them if the
                call fails. It takes a second round of requests, and rows that fit into one MemTable
                each. Calls that read rows first are atomic by themselves.

        Rows with one key are applied one after the other. With `when`, `set` or columns to keep,
        rows are read first, see `memwal_sql.write.conditional`: no update of a key is lost, whoever
        writes it meanwhile.

        Raises InvalidCallError before anything is written if the rows don't fit, BackPressureError
        if nothing was written for lack of room, ConflictError if others wrote the same keys each
        time, or kept taking its regions, FencedError or WriterFailedError if the writer is
        finished: open a new one;
        PartlyWrittenError if a call that reads rows first was fenced after it had written some
        regions; TableReplacedError if a flush has found that the base table was overwritten or is
        gone, and UnknownFormatError if a newer version of this package has it.
        """
        self._check_open()
        check_isolation(isolation)
        expressions = self._resolver.expressions(when, set or {})
        rows = self._normaliser.arrow_rows(data, missing)
        lacking = missing == KEEP and self._normaliser.lacks_columns(rows)
        normalise = partial(self._normaliser.upserts, missing=ERROR if missing == KEEP else missing)
        if not (lacking or expressions):
            return self._write(rows, normalise, atomic=atomic)
        if isinstance(rows, RowStream):
            rows = rows.read_all()
        whole = self._normaliser.partial(rows) if lacking else normalise(rows)
        batch = whole if lacking else whole.select(self._schema.names)
        return self._statements.over_keys(*self._resolver.upsert(batch, expressions), isolation)

    def insert(self, data: Any, *, missing: MissingInInsert = ERROR) -> WriteResult:
        """Insert rows with new keys. If one exists, raises KeysExistError and writes nothing.

        `data` is as in `upsert`; columns that it lacks are an error, or null with `missing="null"`.
        It is always serializable, as it reads only the keys that it writes. Raises as `upsert`
        does.
        """
        self._check_open()
        return self._statements.over_keys(
            *self._resolver.insert(self._normaliser.upserts(data, missing))
        )

    def insert_into(self, rows: pa.Table, description: Description | None = None) -> WriteResult:
        """Write the whole rows of an INSERT statement, as one transaction if they fit into one.

        Existing rows are replaced. Raises as `upsert` does.
        """
        too_large = rows.nbytes > self._options.memtable_bytes
        if too_large or not self._statements.routes or not rows.num_rows:
            return self.upsert(rows)
        self._check_open()
        batch = self._normaliser.upserts(rows)
        statements = self._statements.described(description or Description())
        result = statements.whole_rows(batch)
        return self._write(batch, lambda batch: batch) if result is None else result

    def delete(
        self,
        keys: Any,
        *,
        when: str | None = None,
        isolation: Isolation = SNAPSHOT,
        atomic: bool = False,
    ) -> WriteResult:
        """Delete the rows with these primary keys, whether they exist or not.

        Args:
            keys: values, tuples for a composite key, or rows in any form that `upsert` takes, whose
                primary key columns are read.
            when: a SQL condition over the existing row, `t`; rows that do not meet it stay, and are
                counted, as are keys without a row.
            isolation, atomic: as in `upsert`.
        """
        self._check_open()
        check_isolation(isolation)
        key_columns = self._normaliser.keys(keys)
        if when is None:
            row_bytes = self._normaliser.tombstones(key_columns.slice(0, 1)).nbytes
            return self._write(key_columns, self._normaliser.tombstones, row_bytes, atomic=atomic)
        rows = self._normaliser.tombstones(key_columns)
        expressions = self._resolver.expressions(when, {})
        return self._statements.over_keys(*self._resolver.delete(rows, expressions), isolation)

    def delete_where(self, where: str, *, isolation: Isolation = SNAPSHOT) -> WriteResult:
        """Delete the rows that meet a SQL condition. Rows that begin to meet it during this call
        may stay, unless the isolation is `"serializable"`. Raises as `upsert` does."""
        self._check_open()
        return self._statements.over_rows(*self._resolver.delete_where(where), isolation)

    def update(
        self,
        set: Mapping[str, str],  # noqa: A002
        *,
        where: str | None = None,
        isolation: Isolation = SNAPSHOT,
    ) -> WriteResult:
        """Set columns to the values of SQL expressions over the row, such as `{"n": "n + 1"}`, in
        the rows that meet a condition, or in all. Rows that begin to meet it during this call may
        stay as they are, unless the isolation is `"serializable"`; no other write of a row is lost.
        Raises as `upsert` does."""
        self._check_open()
        return self._statements.over_rows(*self._resolver.update(set, where), isolation)

    def change(
        self,
        read: ReadChanges,
        *,
        whole: bool = False,
        isolation: str = SNAPSHOT,
        description: Description | None = None,
    ) -> WriteResult:
        """Write the changes that `read` computes from the table's rows at the time it is called.

        It is called with None, and again, for rows that others wrote meanwhile, with their keys; if
        all is to be computed again as a `whole`, with None. Raises UnsupportedError for a row whose
        new key is in another region, if the changes are too many for one transaction, and as
        `upsert` does.
        """
        self._check_open()

        def checked(keys: pa.Table | None) -> RowChanges:
            changes = read(keys)
            if changes.moved is not None and not self._is_one_entry(changes):
                self._writers.check_regions_stay(*changes.moved)
            return changes

        select, compute = self._resolver.change(checked)
        statements = self._statements
        if description is not None:
            statements = statements.described(description)
        if isolation == SERIALIZABLE or not whole:
            return statements.over_rows(select, compute, isolation)
        return statements.as_a_whole(select)

    def apply(
        self, changes: Any, *, op: str = "_op", when: str | None = None, atomic: bool = False
    ) -> WriteResult:
        """Write a stream of changes in order: rows with a column `op` that gives the kind of each.

        It is `upsert`, `insert`, `update` or `delete`, or a code of Debezium (c, r, u, d), Flink
        (+I, +U, -U, -D) or Delta's change data feed; the rows before an update are left out. Only
        the key of a delete counts.

        Args:
            changes: rows as `upsert` takes them; `table.changes()`, with `op="_change"`; or a list
                of Debezium's messages, envelopes with `before`, `after` and `op`, with or without a
                `payload` around them. None, a tombstone of Kafka, is skipped.
            op: the column; in envelopes it is always `op`.
            when: a SQL condition over an existing row, `t`, and the change, `s`, as in `upsert`.
                For a delete `s` has the columns that it carries, such as Debezium's `before`, and
                null in the others. A deleted row does not exist: a late older change inserts it
                again.
            atomic: as in `upsert`.

        Raises as `upsert` does.
        """
        self._check_open()
        rows, normalise = opened(changes), partial(self._normaliser.changes, op=op)
        if when is not None:
            rows = rows.read_all() if isinstance(rows, RowStream) else rows
            changes_batch = conditional_changes(self._normaliser, self._schema, rows, op)
            expressions = self._resolver.expressions(when, {})
            return self._statements.over_keys(*self._resolver.upsert(changes_batch, expressions))
        if isinstance(rows, pa.Table | RowStream):
            return self._write(rows, normalise, atomic=atomic)
        return self._write(normalise(rows), lambda batch: batch, atomic=atomic)

    def _is_one_entry(self, changes: RowChanges) -> bool:
        """Whether changes are one transaction for certain, so that rows may move between
        regions."""
        parts = [part for part in (changes.upserts, changes.deletes) if part is not None]
        return (
            self._context.takes_transactions
            and sum(part.num_rows for part in parts) <= self._options.memtable_rows
            and sum(part.nbytes for part in parts) <= self._options.memtable_bytes // 2
        )

    def open_cuts(self) -> dict[RegionWriter, Cut]:
        """A cut of every region that is claimed now, for a transaction."""
        cuts = {}
        for writer in self._writers:
            with suppress(MemWalError):  # fenced: reported where it is written
                cuts[writer] = writer.open_cut()
        return cuts

    def route(self, batch: pa.RecordBatch) -> list[tuple[RegionWriter, pa.RecordBatch]]:
        """The rows of each region, and the region's writer, which has claimed it."""
        self._check_open()
        return self._writers.route(batch)

    def claim(self, regions: Sequence[tuple[int, RegionValues | None]]) -> list[RegionWriter]:
        """The writers of claimed regions, after some regions are claimed, given by spec and
        values."""
        self._check_open()
        return self._writers.all(regions) if regions else []

    def claim_all(self) -> list[RegionWriter]:
        """The writers of all regions of the table, which are claimed."""
        self._check_open()
        return self._statements.claim_all()

    def sync(self) -> None:
        """Write buffered rows to the WAL: every write made so far is durable on return."""
        self._check_open()
        self.land()

    def land(self) -> None:
        """As `sync`, also where the writer is being closed or was closed since the write."""
        self._writers.flush_wal(self._writers.unfenced)

    def flush(self) -> None:
        """Turn every MemTable into a flushed generation; returns when all are committed."""
        self._check_open()
        self._writers.in_turn(lambda: self._flush(self._writers.claimed_again()))

    def flush_usable(self) -> None:
        """As `flush`, without regions that others have taken over, or whose writer failed."""
        if not self._closed and self._lost is None:
            self._flush([writer for writer in self._writers if writer.is_usable])

    def _flush(self, writers: Sequence[RegionWriter]) -> None:
        for writer in writers:
            writer.seal()
        self._writers.flush_wal(writers)
        self._flushes.make_queued()
        for writer in writers:
            writer.wait_flushed()

    def close(self) -> None:
        """Write buffered rows to the WAL and release the regions. MemTables are not flushed: the
        next writer replays them. Raises the error that kept an accepted row from being written; the
        writer is closed in any case.
        """
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
        live.unregister_table(self)
        if self.pid != os.getpid():
            return  # this process has neither the parent's threads nor its regions
        if self._ticks is not None:
            self._ticks.stop()
        self._wal_flushes.shutdown()
        errors: list[Exception] = []
        self._writers.each(RegionWriter.close, errors)
        self._writers.wait()
        self._flushes.shutdown()  # flushes that are running end, and may fail
        self._writers.each(RegionWriter.check_flushes, errors)
        for writer in self._writers:
            live.unregister(self.identity, writer)
        _unwritten.discard(self)
        if errors:
            raise errors[0]

    def __reduce__(self) -> NoReturn:
        """Raise InvalidCallError: regions have one writer."""
        raise InvalidCallError(
            f"a writer of {self._context.uri} can't be pickled or copied, as it owns its regions: "
            "pickle the table, and open table.writer() where the rows are written"
        )

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"regions={len(list(self._writers))}"
        return f"TableWriter({self._context.uri!r}, {state})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> None:
        try:
            self.close()
        except Exception as closing:
            if error is None:
                raise
            error.add_note(f"closing the writer failed too: {closing}")

    def _write(
        self,
        rows: Rows,
        normalise: Callable[[Any], pa.RecordBatch],
        row_bytes: int = 0,
        *,
        atomic: bool = False,
    ) -> WriteResult:
        """Write rows piece by piece, see `normalised`, or at once."""
        written, positions = 0, dict[UUID, int]()
        batches = normalised(rows, normalise, self._options.memtable_bytes, row_bytes)
        if atomic:
            whole = list(islice(batches, 2))
            if len(whole) > 1:
                raise UnsupportedError(
                    "the rows of this call do not fit into one MemTable (memtable_bytes="
                    f"{self._options.memtable_bytes}): write them without atomic=True, or fewer"
                )
            return self._write_atomically(whole)
        try:
            for batch in batches:
                positions |= self._append(batch)
                written += batch.num_rows
        except BaseException as error:
            if written:
                error.add_note(f"the first {written} rows of this call are written")
            raise
        return WriteResult(written, reached(self._options), positions)

    def _write_atomically(self, batches: Sequence[pa.RecordBatch]) -> WriteResult:
        """Write a batch as one transaction."""
        rows = sum(batch.num_rows for batch in batches)
        if not rows:
            return WriteResult(0, DURABLE)
        (batch,) = batches
        statements = self._statements.statements
        with self.room_for(batch.nbytes):
            record = self._writers.in_turn(
                lambda: statements.write_atomically(self._writers.route(batch))
            )
        return WriteResult(rows, DURABLE, {part.region: part.position for part in record.parts})

    def _append(self, batch: pa.RecordBatch) -> dict[UUID, int]:
        if batch.num_rows == 0:
            return {}
        size = batch.nbytes
        self._budget.take_room(size, self._relieve)
        try:
            positions = self._writers.append(batch)
        finally:
            self._budget.release(size)
        return positions if self._options.durable else {}

    @contextmanager
    def room_for(self, size: int) -> Iterator[None]:
        """Keep room for so many bytes. Raises BackPressureError."""
        self._budget.take_room(size, self._relieve)
        try:
            yield
        finally:
            self._budget.release(size)

    def _relieve(self) -> None:
        """Start a flush: of the largest active MemTable, unless one is running."""
        writers = self._writers.unfenced
        for writer in writers:
            writer.check_usable()
        if writers and not any(writer.sealed_bytes for writer in writers):
            largest = max(writers, key=lambda writer: writer.active_bytes)
            largest.seal()
        self._flushes.make_queued()
        if self._ticks is not None:
            self._ticks.wake()  # a slow store would keep the caller here for too long

    def _start_ticks(self) -> Ticks | None:
        options = self._options
        intervals = [] if options.durable else [options.wal_flush_interval_s]
        if options.ages_interval_s is not None:
            intervals.append(options.ages_interval_s)
        return Ticks(self._tick, min(intervals)) if intervals else None

    def _tick(self) -> None:
        if self._options.durable:
            self._writers.tick()
        elif self._wal_flushes.is_busy:
            pass
        elif any(writer.is_due for writer in self._writers):
            self._wal_flushes.submit(self._writers.tick)  # it waits for the store
            self._wal_flushes.make_queued()
        else:
            with _unwritten_lock:
                if not any(writer.has_buffered for writer in self._writers):
                    _unwritten.discard(self)

    def _lose(self, error: RepairError) -> None:
        """Stop all regions: nobody would see further rows."""
        self._lost = error
        for writer in self._writers:
            writer.flush_failed(error)

    def stop(self, error: RepairError) -> None:
        """Note that the table is gone: write nothing to the one at its place."""
        self._lost = error
        for writer in self._writers:
            writer.stop(error)

    def _buffered(self, full: bool) -> None:
        """Note that rows are buffered, `full` if they suffice for an entry."""
        with _unwritten_lock:
            _unwritten.add(self)
        if full and self._ticks is not None:
            self._ticks.wake()

    def _check_open(self) -> None:
        if self._closed:
            raise ReopenError("this writer is closed; open a new one with table.writer()")
        if self._lost is not None:
            raise type(self._lost)(str(self._lost)) from self._lost
        if self.pid != os.getpid():
            raise ReopenError(
                f"this writer was opened by process {self.pid} and does not survive a fork: open "
                f"a new one in process {os.getpid()}"
            )


# Writers with buffered rows live until these are in the log, even if nobody closes them.
_unwritten: set[TableWriter] = set()
_unwritten_lock = RLock()


def _close_unwritten() -> None:
    """Write buffered rows at the end of the interpreter, whose other threads have ended."""
    errors: list[Exception] = []
    for writer in tuple(_unwritten):
        try:
            writer.close()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]


atexit.register(_close_unwritten)
