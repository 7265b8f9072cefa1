"""Group commit of one region's rows into the WAL.

Specification 2, "WAL Flush"; protocol rules 5 and 6.

State, all under one lock:

* `_pending`: writes not yet in the WAL. A durable write gets its MemTable when its entry is
  written, a buffered one when it is made; so MemTables always have the order of the WAL.
* `_generations`: the MemTables, one active and sealed ones that are being flushed.
* `_committing`: one thread writes an entry for all that wait; the others wait for it, and one of
  them goes on with the writes gathered meanwhile. A lone writer wakes no thread. A transaction
  (`write/coordinator`) keeps it from before its intent until its record decides: `_intent`.
* `_failure`: set once; from then on nothing is acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from threading import RLock

import pyarrow as pa

from exec_nodes.base.threads import StateCondition
from memwal_native import void_questions
from memwal_sql.errors import (
    FencedError,
    InvalidCallError,
    MemWalError,
    ReopenError,
    WriterFailedError,
)
from memwal_sql.life_log import deferred_logs
from memwal_sql.state.batch_marks import BatchMark
from memwal_sql.state.lost_rows import LOST
from memwal_sql.storage.records.intent import Intent
from memwal_sql.storage.records.transactions import Part
from memwal_sql.telemetry import FENCES
from memwal_sql.write.back_pressure import MemoryBudget
from memwal_sql.write.claim import RegionClaim
from memwal_sql.write.commit_queue import PendingWrites
from memwal_sql.write.conditional.recent import RecentWrites
from memwal_sql.write.generations import (
    OpenGeneration,
    OpenGenerations,
    PendingWrite,
    memtable_slices,
)
from memwal_sql.write.options import WriterOptions
from memwal_sql.write.result import NOT_WRITTEN
from memwal_sql.write.wal_writer import WalWriter

_OF_APPENDS = (MemWalError, OSError, MemoryError, pa.ArrowException)


class GroupCommit:
    """Puts rows of a region into the WAL, in the order of the calls.

    Attributes:
        region_id: the region.
        epoch: the writer epoch of the claim.
        enqueue_lock: the lock of the table's writer, held while rows are enqueued. Landing an
            entry must not take it: a buffered transaction holds it while it waits for entries.
        recent: the keys written after the open cuts; read under `enqueue_lock`.
        fenced_at: when it has met the claim of another one, by its clock; 0 if it has not.
    """

    def __init__(
        self,
        claim: RegionClaim,
        wal: WalWriter,
        generations: OpenGenerations,
        options: WriterOptions,
        budget: MemoryBudget,
        buffered: Callable[[bool], None],
        clock: Callable[[], float],
        enqueue_lock: AbstractContextManager[object] | None,
    ) -> None:
        self.region_id, self.epoch = claim.region_id, claim.epoch
        self.recent = RecentWrites(generations.active.memtable.primary_key)
        self._wal = wal
        self._generations = generations
        self._options = options
        self._takes_turns = options.takes_turns
        self._buffered = buffered
        self._budget = budget
        self._clock = clock
        self._lock = RLock()  # taken within `enqueue_lock`
        self.enqueue_lock = self._lock if enqueue_lock is None else enqueue_lock
        self._changed = StateCondition(self._lock)
        self._pending = PendingWrites(options, clock)
        self._landed = 0  # the ticket up to which all writes have landed
        self._end = wal.last_position  # that of the last entry, or of an intent that is decided
        self.fenced_at = 0.0
        self._attributes = wal.attributes
        self._committing = False
        self._intent: PendingWrite | None = None
        self._closed = False
        self._commits = 0
        self._failure: MemWalError | None = None
        self._flush_failure: MemWalError | None = None
        self._lost_rows = 0
        self._reported = False

    def append(self, batch: pa.RecordBatch, staged: BatchMark | None = None) -> int:
        """Write rows with the MemTable's schema, in order; empty batches do nothing.

        Durable: returns the position of the (last) WAL entry once it has landed. Buffered: returns
        0 at once. A batch within `memtable_rows` and `memtable_bytes` is written whole or not at
        all. Raises FencedError, WriterFailedError or CorruptFileError; after the first of them the
        writer takes no more rows. Rows that were `staged` as a batch must fit into a MemTable.
        """
        if batch.num_rows == 0:
            self.check_usable()
            return 0
        return self.land(self.enqueue(batch, staged=staged))

    def enqueue(
        self, batch: pa.RecordBatch, *, checked: bool = False, staged: BatchMark | None = None
    ) -> list[PendingWrite]:
        """Give one or more rows their place in the order of writing; `land` them next.

        `checked`: under `enqueue_lock` by the caller, who enqueues rows of several regions: they
        have their places in all or in none. If the writer has stopped since, `land` or the next
        call raises that.
        """
        parts = memtable_slices(batch, self._options)
        if staged is not None and len(parts) > 1:  # the mark of one would stand for all
            raise InvalidCallError("rows of a staged batch must fit into one MemTable")
        with self.enqueue_lock, self._lock:
            if not checked:
                self._check_usable(NOT_WRITTEN)
            try:
                return [self._enqueue(rows, size, staged) for rows, size in parts]
            except BaseException as error:
                self._fail(self._interrupted(error))
                raise

    def land(self, writes: list[PendingWrite]) -> int:
        """Return when enqueued rows are as durable as the options say; see `append`."""
        options = self._options
        if options.durable:
            self._land(writes[-1].ticket, writes)
        else:
            self._buffered(self._pending.full)
        if options.indexed:
            _index_texts(writes)
        return writes[-1].position if options.durable else 0

    def fits(self, batch: pa.RecordBatch) -> bool:
        """Whether rows fit into one MemTable, and so into one intent."""
        return len(memtable_slices(batch, self._options)) == 1

    def enqueue_intent(self, write: PendingWrite) -> None:
        """Give the rows of a transaction, which may be none, their place in the order of writing.

        Everything before lands first; nothing behind it does until `end_intent`, or until the write
        `is_abandoned`. In a buffered writer the caller holds `enqueue_lock` until then, as rows go
        into MemTables when they are enqueued.
        """
        with self.enqueue_lock, self._lock:
            self._check_usable(NOT_WRITTEN)
            try:
                self._pending.add(write)
                if write.batch.num_rows:
                    self.recent.add(write.ticket, write.batch)
            except BaseException as error:
                self._fail(self._interrupted(error))
                raise

    def begin_intent(self, write: PendingWrite) -> None:
        """Return when all before an intent has landed, and it is the next entry. Raises the error
        that stopped the writer."""
        with deferred_logs():
            self._land_all(write.ticket - 1, [])
        self._changed.wait_for(lambda: not self._committing)
        with self._lock:
            if self._failure is not None:
                raise self._error_of(self._failure, [])
            if write.batch.num_rows:
                write.generation = self._generations.begin_intent(write.batch.num_rows, write.size)
            self._pending.take_intent()
            self._committing, self._intent = True, write

    def put_intent(self, write: PendingWrite, intent: Intent) -> int:
        """Write the entry of an intent that has begun; its position. Raises as `append`; the caller
        then `stop`s this writer."""
        generation = self._generations.active if write.generation is None else write.generation
        write.intent = intent
        write.position = self._wal.append(
            write.batch, generation.memtable.generation, write.staged, intent=intent
        )
        return write.position

    def end_intent(
        self, write: PendingWrite, parts: tuple[Part, ...] = (), *, decided: bool = True
    ) -> None:
        """Add the rows of a transaction that is committed with these `parts`, or, without any, give
        its intent up. Others go on; the next entry has the verdict, if it is `decided`."""
        with self._lock:
            if self._intent is not write:
                write.is_abandoned = True
                self._changed.tell()
                return
            intent = write.intent
            if decided and intent is not None and write.position:
                self._wal.note(write.position, intent, bool(parts))
            if write.generation is not None and (parts or self._failure is None):
                self._generations.end_intent(write.generation, write, parts)
            elif parts and intent is not None:
                self._generations.note_without_rows(write.position, parts, intent)
            self._landed, self._end = write.ticket, max(self._end, write.position)
            self._end_commit()

    def next_epoch(self) -> int:
        """The epoch that has written behind the last entry; 0 without any."""
        return self._wal.next_epoch()

    def flush_wal(self) -> None:
        with self._lock:
            if self._failure is not None:
                raise self._error_of(self._failure, [])
            ticket = self._pending.last_ticket
        self._land(ticket, [])

    def check_usable(self) -> None:
        """Raise the error that stopped the writer, if any."""
        with self._lock:
            self._check_usable()

    # The caller holds the lock in the methods below.

    def _check_usable(self, note: str = "") -> None:
        failure = self._failure or self._flush_failure
        if failure is not None:
            self._reported = True
            raise again(failure, note)
        if self._closed:
            raise ReopenError(f"the writer of region {self.region_id} is closed; open a new one")

    def _enqueue(self, batch: pa.RecordBatch, size: int, staged: BatchMark | None) -> PendingWrite:
        generation = None
        if not self._options.durable:
            generation = self._generations.room_for(batch.num_rows, size)
            generation.unlanded += 1
            self._generations.insert(generation, batch, size)
            void_questions()  # after that: a look that began before it may lack the rows
            self._generations.seal_if_full()
        write = PendingWrite(batch, size, generation, staged=staged)
        self._pending.add(write)
        self.recent.add(write.ticket, batch)
        return write

    def _landed_at(
        self, position: int, generation: OpenGeneration, group: list[PendingWrite]
    ) -> None:
        for write in group:
            write.position = position
            if self._options.durable:
                self._generations.insert(generation, write.batch, write.size)
        self._generations.landed(generation, group, position)
        self._landed, self._end = group[-1].ticket, position

    def _fail(self, error: MemWalError) -> None:
        if self._failure is None:
            if not self._options.durable:
                LOST.note()  # also rows of an entry on its way, which may not land
            if not self._options.durable and (lost := self._pending.rows):
                self._lost_rows = lost
                error = again(error, f"{lost} buffered rows were not written")
            self._failure = error
            if isinstance(error, FencedError):
                self.fenced_at = self._clock()
                FENCES(1, self._attributes)
                self._generations.release()
                self._reported = self._reported or self._takes_turns  # no row is lost then
            self._pending.clear()

    # The methods below do group commit, without the lock.

    def _land(self, ticket: int, writes: list[PendingWrite]) -> None:
        """Return when all writes up to `ticket` have landed; raise when they can't any more.

        An entry on its way is always waited for, also by a writer that was fenced meanwhile: it
        may have landed before the fence, and then it counts.
        """
        with deferred_logs():  # a handler may write to this region
            self._land_all(ticket, writes)

    def _land_all(self, ticket: int, writes: list[PendingWrite]) -> None:
        while True:
            commit: int | None = None
            group: list[PendingWrite] = []
            try:
                self._changed.wait_for(lambda: self._is_free or self._landed >= ticket)
                with self._lock:
                    if self._pending.intents and not self._committing:
                        self._landed = max(self._landed, self._pending.drop_abandoned())
                    if self._landed >= ticket:
                        return
                    if self._committing or (self._pending.intents and self._pending.is_blocked):
                        continue
                    if self._failure is not None:
                        raise self._error_of(self._failure, writes)
                    commit = self._commits
                    self._committing = True
                    generation, group = self._pending.take_entry(self._generations)
                begun = self._clock()
                position = self._append(generation, group)
                with self._lock:
                    self._pending.note_speed(group, self._clock() - begun)
                    self._landed_at(position, generation, group)
                    self._end_commit()
            except BaseException as error:
                # An interrupt (Ctrl-C) may come anywhere: others must not wait for this commit.
                with self._lock:
                    own = commit == self._commits
                    if own:
                        failure = self._commit_failed(group, error)
                        self._end_commit()
                    self._changed.tell()  # an interrupted thread may not have come to it
                # Other exceptions come from outside, such as that of a time limit.
                if commit is None or not isinstance(error, _OF_APPENDS):
                    raise
                if own:
                    raise self._error_of(failure, writes) from error

    @property
    def _is_free(self) -> bool:
        pending = self._pending
        return not self._committing and not (pending.intents and pending.is_blocked)

    def _append(self, generation: OpenGeneration, group: list[PendingWrite]) -> int:
        batches = [write.batch for write in group]
        with self._budget.copy(sum(write.size for write in group)):
            batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
            return self._wal.append(batch, generation.memtable.generation, group[0].staged)

    def _end_commit(self) -> None:
        self._committing, self._intent = False, None
        self._commits += 1
        self._changed.tell()

    def _commit_failed(self, group: list[PendingWrite], error: BaseException) -> MemWalError:
        """Stop the writer and return the error that stopped it, which may be an earlier one."""
        failure = error if isinstance(error, MemWalError) else self._interrupted(error)
        for write in group:
            write.error = failure
        self._fail(failure)
        return self._failure or failure

    def _interrupted(self, error: BaseException) -> WriterFailedError:
        failure = WriterFailedError(
            f"region {self.region_id}: a write was interrupted, it is unknown whether its rows are "
            f"in the WAL: {error!r}; open a new writer, and read them back or write them again"
        )
        failure.__cause__ = error
        return failure

    def _error_of(self, failure: MemWalError, writes: list[PendingWrite]) -> MemWalError:
        """The error for a caller whose `writes` (none: a flush) can't land any more."""
        self._reported = True
        own = next((write.error for write in writes if write.error is not None), None)
        landed = [write.position for write in writes if write.position]
        note = ""
        if landed:
            note = f"the first rows of this call are in the WAL, at positions {landed}"
        elif writes and own is None:
            note = NOT_WRITTEN
        return again(own or failure, note)


def _index_texts(writes: list[PendingWrite]) -> None:
    """Tokenize the written rows, without the lock."""
    memtables = {
        id(w.generation): w.generation.memtable for w in writes if w.generation is not None
    }
    for memtable in memtables.values():
        # The rows are written: searches report texts that can't be tokenized.
        with suppress(MemWalError, OSError, ValueError):
            memtable.index_texts()


def again(error: MemWalError, note: str = "") -> MemWalError:
    """The same error for another caller, with a traceback of its own."""
    same = type(error)(f"{error}; {note}" if note else str(error))
    same.__cause__ = error
    return same
