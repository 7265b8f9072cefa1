"""The life of a table's writer: its parts, the flushes of its regions by time and need, its end.

Buffered rows are written by the end of the interpreter, even if nobody closes the writer.
"""

from __future__ import annotations

import atexit
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from random import random
from threading import Lock, RLock
from typing import Any, NoReturn, Self
from uuid import UUID

import pyarrow as pa

from exec_nodes.base.threads import lost_at_exit, start_call
from exec_nodes.base.ticker import Ticks
from exec_nodes.base.transient_threads import TransientThreads
from memwal_sql.errors import InvalidCallError, MemWalError, ReopenError, RepairError
from memwal_sql.state import open_writers
from memwal_sql.state.context import TableContext
from memwal_sql.storage.objects.concurrent import SharedCall
from memwal_sql.storage.wal.entry import entry_schema
from memwal_sql.write.back_pressure import MemoryBudget
from memwal_sql.write.conditional.recent import Cut
from memwal_sql.write.conditional.resolve import LiveRows, Resolver
from memwal_sql.write.generation_writer import FindIndexes
from memwal_sql.write.ingest.normalise import Normaliser
from memwal_sql.write.options import WriterOptions
from memwal_sql.write.region_opener import FindRegions, RegionOpener
from memwal_sql.write.region_writer import RegionWriter
from memwal_sql.write.region_writers import RegionWriters
from memwal_sql.write.router import RegionValues, active_spec
from memwal_sql.write.statement import Enqueuer
from memwal_sql.write.statement_writer import StatementWriter
from memwal_sql.write.turns import Turns
from planner.model import TableInfo

_PARALLEL_FLUSHES = {False: 2, True: 8}  # by whether the store is remote


class WriterLifecycle(open_writers.OpenTable):
    """Opens what a writer of a table consists of, has its regions flushed, and closes it."""

    def __init__(
        self,
        *,
        context: TableContext,
        info: TableInfo,
        base: Any,
        regions_of: FindRegions,
        check_claimable: Callable[[], None] = lambda: None,
        check_base: Callable[[], None] = lambda: None,
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
            check_claimable: raises if no region may be claimed now; called before a claim.
            check_base: raises if nobody would read the rows of a call; called before they are
                enqueued, so it must be quick.
            regions_of: gives the manifests of the regions with this spec id and these values, None
                for those that do not exist; called before regions are created.
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
            options.most_unflushed_bytes,
            options.back_pressure_timeout_s,
            clock,
            {"table": context.store.uri},
        )
        flushes = options.parallel_flushes or _PARALLEL_FLUSHES[context.store.remote]
        self._flushes = TransientThreads(flushes, f"flushes of {context.uri}")
        self._wal_flushes = TransientThreads(1, f"writes of {context.uri}")
        opener = RegionOpener(
            context=context,
            info=info,
            base=base,
            spec=self._spec,
            check_claimable=check_claimable,
            find=regions_of,
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
            opener, region, self._check_open, turns if options.turns else None, check_base
        )
        enqueuer = Enqueuer(
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
            enqueuer, self._writers, regions, self._spec is not None, options
        )
        self._close_lock = Lock()
        self._closed = False
        self._lost: RepairError | None = None
        self.pid = os.getpid()
        self.identity = context.identity
        self.columns = entry_schema(info.schema, base.lance_schema)
        self.of_insert = of_insert
        self._ticks = self._start_ticks()
        open_writers.register_table(self)

    @property
    def routes(self) -> bool:
        return self._spec is not None

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
        open_writers.unregister_table(self)
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
            open_writers.unregister(self.identity, writer)
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
_unwritten: set[WriterLifecycle] = set()
_unwritten_lock = RLock()


def _close_unwritten() -> None:
    """Write buffered rows at the end of the interpreter, whose other threads have ended. They are
    written by threads that the exit waits for, as a store may hang."""
    for writer in tuple(_unwritten):
        close = partial(_close, writer)
        try:
            start_call(close, f"writes of {writer.identity[0]}")
        except RuntimeError:  # from Python 3.12 on, where no thread is idle
            close()


def _close(writer: WriterLifecycle) -> None:
    try:
        writer.close()
    except Exception as error:
        traceback.print_exception(error)  # nobody else hears of it
        lost_at_exit(f"buffered rows of {writer.identity[0]} were not written: {error}")


atexit.register(_close_unwritten)
