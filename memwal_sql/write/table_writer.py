"""The writer that users have: it takes rows of any region and keeps one region writer for each.

Regions are claimed when the first row for them comes, and created on demand (protocol rule 11).
MemTables are flushed by time and need. Buffered rows are written by the end of the interpreter,
even if nobody closes the writer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import random
from threading import Lock
from typing import Any, NoReturn, Self
from uuid import UUID

import pyarrow as pa

from exec_nodes.base.threads import is_over
from exec_nodes.base.ticker import Ticks
from exec_nodes.base.transient_threads import TransientThreads
from memwal_sql.errors import (
    InvalidCallError,
    ReopenError,
    RepairError,
)
from memwal_sql.state import open_writers
from memwal_sql.write.conditional.recent import Cut
from memwal_sql.write.conditional.resolve import Compute, LiveRows, ReadChanges, Resolved
from memwal_sql.write.coordinator import Description
from memwal_sql.write.ingest.normalise import Rows
from memwal_sql.write.ingest.pieces import joined, normalised
from memwal_sql.write.options import WriterOptions
from memwal_sql.write.region_opener import RegionOpener, WrittenTable
from memwal_sql.write.region_writer import RegionWriter
from memwal_sql.write.region_writers import RegionWriters
from memwal_sql.write.result import DURABLE, WriteResult, reached
from memwal_sql.write.router import RegionValues
from memwal_sql.write.row_calls import RowCalls
from memwal_sql.write.statement import SNAPSHOT, Isolation, Statements
from memwal_sql.write.turns import Turns

_PARALLEL_FLUSHES = {False: 2, True: 8}  # by whether the store is remote


class TableWriter(RowCalls):
    """Writes rows of one table. A context manager, safe to use from several threads.

    Within a region a call is written whole or not at all, up to the size of a MemTable; a larger
    one is written in pieces, and an error has a note of the pieces that were written. Each region
    of a call is written on its own, and an error names the written ones. Calls of one thread take
    effect in order.
    """

    def __init__(
        self,
        table: WrittenTable,
        rows: LiveRows,
        *,
        region: str | None = None,
        options: WriterOptions | None = None,
        of_statements: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        random: Callable[[], float] = random,
    ) -> None:
        """
        Args:
            rows: the table, for statements that read existing rows.
            region: the name or UUID of the one region to write, for manual regions.
            of_statements: whether statements opened it, and not the program: they may close it.
        """
        super().__init__(table.info, rows)
        table.check_region(region)
        context, self._options = table.context, options or WriterOptions()
        remote = context.store.remote
        most = self._options.parallel_flushes or _PARALLEL_FLUSHES[remote]
        self._flushes = TransientThreads(most, f"flushes of {context.uri}")
        self._wal_flushes = TransientThreads(1, f"writes of {context.uri}")
        opener = RegionOpener(
            table=table,
            options=self._options,
            flushes=self._flushes,
            lost=self._lose,
            buffered=self._buffered,
            clock=clock,
            sleep=sleep,
        )
        self._budget = opener.budget
        turns = Turns(remote=remote, clock=clock, sleep=sleep, random=random)
        self._writers = RegionWriters(
            opener, region, self._check_open, turns if self._options.turns else None
        )
        self._statements = Statements(
            context=context,
            writers=self._writers,
            make_room=lambda size: self._budget.wait_for_room(size, self._relieve),
            enqueue_lock=opener.enqueue_lock,
            regions=table.regions,
            routes=table.spec is not None,
            options=self._options,
        )
        self._close_lock = Lock()
        self._closed = False
        self._lost: RepairError | None = None
        self.pid = os.getpid()
        self.identity = context.identity
        self.columns = table.stored
        self.routes, self.of_statements = table.spec is not None, of_statements
        self._ticks = self._start_ticks()
        open_writers.register_table(self)

    def insert_into(self, rows: pa.Table, description: Description | None = None) -> WriteResult:
        """Write the whole rows of an INSERT statement, as one transaction if they fit into one.

        Existing rows are replaced. Raises as `upsert` does, and UnsupportedError for rows that are
        too many for one transaction if the description has an actor, who is recorded with one, or
        asks for that.
        """
        description = description or Description()
        may_be_parts = description.actor is None and not description.must_be_atomic
        too_large = rows.nbytes > self._options.memtable_bytes and may_be_parts
        if too_large or not rows.num_rows:
            return self.upsert(rows)
        self._check_open()
        batch = self._normaliser.upserts(rows)
        result = self._statements.whole_rows(batch, description)
        if result is not None:
            return result
        is_one_entry = self._statements.is_one_entry(batch)  # before: it may raise
        return replace(self._write(batch, lambda batch: batch), atomic=is_one_entry)

    def change(
        self,
        read: ReadChanges,
        *,
        whole: bool = False,
        isolation: str = SNAPSHOT,
        description: Description | None = None,
    ) -> WriteResult:
        """Write the changes that `read` computes from the table's rows at the time it is called.

        It is called with None for all changes. If others wrote some of their keys meanwhile, it is
        called again: with these keys or, for a statement that is computed again as a `whole`, with
        None. Raises UnsupportedError if the changes are too many for one transaction, and a row
        moves to another region with a new key; and as `upsert` does.
        """
        self._check_open()
        return self._statements.over_rows(
            *self._resolver.change(read), isolation, description or Description(), whole=whole
        )

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
            whole = joined(batches, self._options.memtable_bytes)
            result = None if whole is None else self._statements.whole_rows(whole, atomic=True)
            return result or WriteResult(0, DURABLE)
        try:
            for batch in batches:
                positions |= self._append(batch)
                written += batch.num_rows
        except BaseException as error:
            if written:
                error.add_note(f"the first {written} rows of this call are written")
            raise
        return WriteResult(written, reached(self._options), positions, atomic=written == 0)

    def _over_keys(
        self, keys: pa.RecordBatch, compute: Compute, isolation: Isolation = SNAPSHOT
    ) -> WriteResult:
        return self._statements.over_keys(keys, compute, isolation)

    def _over_rows(
        self, select: Callable[[], Resolved], compute: Compute, isolation: Isolation
    ) -> WriteResult:
        return self._statements.over_rows(select, compute, isolation)

    def _append(self, batch: pa.RecordBatch) -> dict[UUID, int]:
        if batch.num_rows == 0:
            return {}
        if not self._options.durable and is_over():
            raise InvalidCallError(
                "this process is ending, and nothing would write buffered rows: use a writer with "
                "durable=True here"
            )
        with self.room_for(batch.nbytes):
            positions = self._writers.append(batch)
        return positions if self._options.durable else {}

    @property
    def takes_turns(self) -> bool:
        """Whether it goes on with a region that another process took over."""
        return self._options.takes_turns

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def usable(self) -> bool:
        if self._closed or self._lost is not None:
            return False
        return all(writer.is_usable or writer.is_handed_over for writer in self._writers)

    def begin_cuts(self) -> dict[RegionWriter, Cut]:
        """A cut of every region that is claimed now, or was, for `landed_cuts`."""
        return self._writers.begin_cuts()

    def route(self, batch: pa.RecordBatch) -> list[tuple[RegionWriter, pa.RecordBatch]]:
        """The rows of each region, and the region's writer, which has claimed it."""
        self._check_open()
        return self._writers.route(batch)

    def take_turns_with(self, others: Iterable[TableWriter]) -> None:
        """Note that transactions write this table together with others: this process takes its
        turns in all of them at once."""
        self._writers.claimed.take_turns_with(w.region_writers.claimed for w in others)

    @property
    def region_writers(self) -> RegionWriters:
        """The writers of the table's regions."""
        return self._writers

    def claim(self, regions: Sequence[tuple[int, RegionValues | None]]) -> list[RegionWriter]:
        """The writers of claimed regions, after some regions are claimed, given by spec and
        values."""
        self._check_open()
        return self._writers.claim(regions) if regions else []

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
        open_writers.unregister_table(self)
        if self.pid != os.getpid():
            return  # this process has neither the parent's threads nor its regions
        if self._ticks is not None:
            self._ticks.stop()
        self._wal_flushes.shutdown()
        errors: list[Exception] = []
        self._writers.each(RegionWriter.close, errors)
        self._writers.claimed.wait()
        self._flushes.shutdown()  # flushes that are running end, and may fail
        self._writers.each(RegionWriter.check_flushes, errors)
        for writer in self._writers:
            open_writers.unregister(self.identity, writer)
        open_writers.UNWRITTEN.discard(self)
        if errors:
            raise errors[0]

    def __reduce__(self) -> NoReturn:
        """Raise InvalidCallError: regions have one writer."""
        raise InvalidCallError(
            f"a writer of {self.identity[0]} can't be pickled or copied, as it owns its regions: "
            "pickle the table, and open table.writer() where the rows are written"
        )

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"regions={len(list(self._writers))}"
        return f"TableWriter({self.identity[0]!r}, {state})"

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
            with open_writers.UNWRITTEN_LOCK:
                if not any(writer.has_buffered for writer in self._writers):
                    open_writers.UNWRITTEN.discard(self)

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
        with open_writers.UNWRITTEN_LOCK:
            open_writers.UNWRITTEN.add(self)
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
