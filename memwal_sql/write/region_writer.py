"""The writer of one region: its MemTables, their flushes, and the tail that readers take of them.

Specification 2, "Write Operations"; protocol rule 6.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from memwal_sql.errors import FencedError, MemWalError, ReopenError, WriterFailedError
from memwal_sql.state.memtable import MemTable
from memwal_sql.state.replay import MakeMemTable, Replay, ReplayedMemTable
from memwal_sql.state.tail import Tail
from memwal_sql.storage.deadlines import check_deadline, remaining
from memwal_sql.storage.wal.log import Wal
from memwal_sql.write.back_pressure import MemoryBudget
from memwal_sql.write.claim import RegionClaim, ReplayedLog, fenced
from memwal_sql.write.conditional.recent import Cut, RecentWrites
from memwal_sql.write.flusher import RegionFlusher
from memwal_sql.write.generations import OpenGenerations
from memwal_sql.write.group_commit import GroupCommit, again
from memwal_sql.write.options import WriterOptions
from memwal_sql.write.wal_writer import WalWriter


class RegionWriter(GroupCommit):
    """Writes one region under a claim. Safe to use from several threads.

    Attributes:
        entry_schema: the columns that the writer was opened with, and their field ids.
    """

    def __init__(
        self,
        *,
        claim: RegionClaim,
        replayed: tuple[ReplayedMemTable, ...],
        make_memtable: MakeMemTable,
        wal: WalWriter,
        make_flusher: Callable[[RegionWriter], RegionFlusher],
        options: WriterOptions,
        budget: MemoryBudget,
        buffered: Callable[[bool], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        order: AbstractContextManager[object] | None = None,
    ) -> None:
        super().__init__(claim, wal, options, budget, buffered, clock, order)
        self.entry_schema = wal.schema
        self._claim = claim
        self._make_memtable = make_memtable
        flusher = make_flusher(self)
        self._generations = OpenGenerations(
            replayed=replayed,
            current_generation=claim.manifest.current_generation,
            make_memtable=make_memtable,
            submit=flusher.submit,
            pass_over=flusher.pass_over,
            options=options,
            budget=budget,
            clock=clock,
        )
        with self._lock:
            self._generations.start()
        self.recent = RecentWrites(self._generations.active.memtable.primary_key)

    @property
    def sealed_bytes(self) -> int:
        """Memory of MemTables that are being flushed."""
        with self._lock:
            return self._generations.bytes - self._generations.active.memtable.bytes

    @property
    def active_bytes(self) -> int:
        """Memory of the MemTable that takes new rows."""
        with self._lock:
            return self._generations.active.memtable.bytes

    @property
    def unflushed_rows(self) -> int:
        """Rows that are not committed as a generation."""
        with self._lock:
            return sum(memtable.rows for memtable in self._generations.memtables)

    @property
    def end(self) -> int:
        """The last WAL position that is decided."""
        with self._lock:
            return self._end

    @property
    def durable(self) -> bool:
        """Whether rows are in the WAL before a call returns."""
        return self._options.durable

    @property
    def is_usable(self) -> bool:
        """Whether no error has stopped the writer."""
        with self._lock:
            return self._failure is None and self._flush_failure is None and not self._closed

    @property
    def is_handed_over(self) -> bool:
        """Whether another writer has the region, and its turn ends."""
        with self._lock:
            return self._takes_turns and isinstance(self._failure, FencedError)

    def replayed_log(self, wal: Wal) -> ReplayedLog:
        """What this writer has of the log of a region that is handed over, to be followed. Its
        MemTables grow then, so that it can be asked once."""
        self._changed.wait_for(lambda: not self._committing)
        with self._lock:
            manifest, memtables = self._claim.manifest, self._generations.replayed()
            flushed, oldest = self._generations.flushed, self._generations.oldest
        after = max(flushed, manifest.replay_after_wal_entry_position)
        end = 1 + max([after, *(memtable.last_position for memtable in memtables)])
        replayed = Replay(wal, oldest, self._make_memtable, memtables, self._wal.notes)
        return ReplayedLog(manifest, replayed, after, end, end)

    def probe(self) -> None:
        """Note if another writer has claimed the region, as the next append would."""
        with self._lock:
            if self._committing:  # the entry finds out
                return
            commits = self._commits
        epoch = self._wal.next_epoch()
        with self._lock:
            is_other = not self._committing and commits == self._commits
        if is_other and epoch > self.epoch:
            self.taken_over(epoch)

    def open_cut(self) -> Cut:
        """A cut of the region: readers see every write up to it from now on, and `recent` has the
        keys of later writes."""
        with self.order, self._lock:
            self._check_usable()
            cut = self.recent.open(self._pending.last_ticket)
        if self._options.durable:
            self._land(cut.ticket, [])
        return cut

    def seal(self) -> None:
        """Start a flush of the active MemTable in the background, if it has rows."""
        with self._lock:
            self._check_usable()
            self._generations.seal()

    def wait_flushed(self) -> None:
        """Return when every MemTable sealed so far is committed as a generation. Raises
        DeadlineExceededError; the flushes go on."""
        with self._lock:
            newest = self._generations.active.memtable.generation
        self._changed.wait_for(
            lambda: (
                self._generations.oldest >= newest
                or self._failure is not None
                or self._flush_failure is not None
            ),
            remaining(),
        )
        with self._lock:
            if self._generations.oldest < newest:
                self._check_usable()
                check_deadline(f"region {self.region_id}: a flush goes on in the background")

    def tail(self, since: int = 0) -> Tail:
        """The unflushed rows, and the committed intents among them above the position `since`.

        In a durable writer all rows are in the WAL. An entry on its way is waited for there, and an
        intent in any writer: a reader of another process may already have seen it. Raises once the
        writer is fenced, failed or closed: its rows may then differ from the region's.
        """
        with self._lock:
            seen = self._commits
        self._changed.wait_for(
            lambda: (
                not (self._committing and (self._options.durable or self._intent is not None))
                or self._commits != seen
            )
        )
        with self._lock:
            if self._failure is not None:
                raise again(self._failure)
            if self._closed:
                raise ReopenError(f"the writer of region {self.region_id} is closed")
            generations = self._generations
            unflushed = generations.memtables
            marks = generations.marks(since) if generations.last_transaction > since else ()
            memtables = tuple([memtable.snapshot() for memtable in unflushed])
            return Tail(memtables, self._end, 0, marks)

    @property
    def has_buffered(self) -> bool:
        """Whether some rows are not in the WAL yet, or on their way."""
        with self._lock:
            return self._committing or self._pending.rows > 0

    @property
    def is_due(self) -> bool:
        """Whether `tick` has anything to do."""
        with self._lock:
            return self._failure is None and (self._pending.due or self._generations.is_old)

    def tick(self) -> None:
        """Flush what the thresholds of time and size say; one thread calls it now and then."""
        with self._lock:
            if self._failure is not None:
                return
            due = self._pending.due
        if due and not self._options.durable:
            self.flush_wal()
        with self._lock:
            if self._generations.is_old:
                self._generations.seal()

    def close(self) -> None:
        """Put buffered rows into the WAL and take no more writes. Raises the error that kept rows
        from the WAL, or a failure that no call has raised yet.
        """
        with self._lock:
            if self._closed:
                return
        try:
            if self._failure is None:
                self.flush_wal()
        finally:
            with self.order, self._lock:
                self._closed = True
                self._generations.release()
        with self._lock:
            # A statement may have enqueued rows since it stopped; those of durable writers raise.
            lost = self._lost_rows or (self._pending.rows and not self._options.durable)
            if self._failure is not None and (lost or not self._reported):
                raise self._error_of(self._failure, [])

    def check_flushes(self) -> None:
        """Raise the failure of a flush that no call has raised yet; for closing."""
        with self._lock:
            if self._flush_failure is not None and not self._reported:
                self._check_usable()

    def taken_over(self, by: int) -> None:
        """Note at once that another writer of this process has claimed the region with the epoch
        `by`: this one would go on showing buffered rows."""
        self.stop(fenced(self.region_id, self.epoch, by))

    def stop(self, error: MemWalError) -> None:
        """Take no more writes, for the given reason; closing then raises only if rows are lost."""
        with self._lock:
            if self._failure is None:
                self._fail(error)
                self._reported = True
            self._changed.tell()

    # Callbacks of the flusher.

    def flushed(self, memtable: MemTable) -> None:
        """A generation is committed: readers find it in storage from now on."""
        with self._lock:
            self._generations.remove(memtable)
            self._changed.tell()

    def passed(self, position: int) -> None:
        """Replays begin behind a position from now on."""
        with self._lock:
            self._generations.passed(position)

    def flush_failed(self, error: MemWalError) -> None:
        """A generation can't be flushed, the claim is lost, or the table is another one now."""
        with self._lock:
            if isinstance(error, WriterFailedError):
                self._flush_failure = error
            else:
                self._fail(error)
            self._changed.tell()
