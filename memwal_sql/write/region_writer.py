"""The writer of one region: its MemTables, their flushes, and the tail that readers take of them.

Specification 2, "Write Operations"; protocol rule 6.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress

import pyarrow as pa

from memwal_sql.errors import FencedError, MemWalError, ReopenError, WriterFailedError
from memwal_sql.state.batch_marks import BatchMark
from memwal_sql.state.memtable import MemTable
from memwal_sql.state.replay import MakeMemTable, Replay, ReplayedMemTable
from memwal_sql.state.tail import Tail
from memwal_sql.storage.deadlines import check_deadline, remaining
from memwal_sql.storage.region.manifest import FlushedGeneration
from memwal_sql.storage.wal.log import Wal
from memwal_sql.write.back_pressure import MemoryBudget
from memwal_sql.write.claim import RegionClaim, ReplayedLog, fenced
from memwal_sql.write.conditional.recent import Cut, Write
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
        flusher: RegionFlusher,
        options: WriterOptions,
        budget: MemoryBudget,
        buffered: Callable[[bool], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        enqueue_lock: AbstractContextManager[object] | None = None,
    ) -> None:
        generations = OpenGenerations(
            replayed=replayed,
            current_generation=claim.manifest.current_generation,
            make_memtable=make_memtable,
            submit=flusher.submit,
            pass_over=flusher.pass_over,
            options=options,
            budget=budget,
            clock=clock,
        )
        super().__init__(claim, wal, generations, options, budget, buffered, clock, enqueue_lock)
        self.entry_schema = wal.schema
        self._claim = claim
        self._make_memtable = make_memtable
        self._flusher = flusher
        flusher.start(self.flushed, self.passed, self.flush_failed)
        with self._lock:
            generations.start()

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

    def published(self, query_id: str) -> int:
        """The last staged batch of a query in the region; -1 without any."""
        with self._lock:
            flushed = self._flusher.published.get(query_id, -1)
            return max(flushed, self._generations.published(query_id))

    def write(self, generation: int, rows: pa.Table) -> FlushedGeneration:
        """Write rows, every key once, as a generation that no manifest lists."""
        return self._flusher.write(generation, rows)

    def add_generations(
        self, make: Callable[[int], Sequence[FlushedGeneration]], staged: BatchMark | None = None
    ) -> None:
        """Add the generations that `make` writes, from a number on, in one manifest commit, which
        ends the claim: the writer takes no more rows. They were `staged` as a batch, if they were.
        All MemTables are flushed, and nobody else writes with this writer meanwhile. Raises as
        `commit_flush`.
        """
        first = self._generations.active.memtable.generation
        try:
            made = make(first)
            if made:
                published = {} if staged is None else {staged.query_id: staged.batch_id}
                self._flusher.add(made, published)
        except BaseException as error:
            self.stop(error if isinstance(error, MemWalError) else self._interrupted(error))
            raise
        with self._lock:
            self._generations.go_on_at(first + len(made))
        if made:
            self.stop(FencedError(f"region {self.region_id}: {_ENDED}"))

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
        """Whether another process has taken the region over, and this writer takes it back in its
        next turn."""
        with self._lock:
            return self._takes_turns and isinstance(self._failure, FencedError)

    def replayed_log(self, wal: Wal) -> ReplayedLog:
        """The log of a region that is handed over, as this writer replayed it, for its successor.
        Call it once: following it adds to the MemTables."""
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
        self.check_usable()
        cut = self.begin_cut()
        self.reach(cut)
        return cut

    def begin_cut(self) -> Cut:
        """A cut that readers see every write up to once it is reached. For a writer whose region is
        handed over it is after all that it wrote."""
        with self.enqueue_lock, self._lock:
            if self.is_handed_over:
                return Cut(0, self._generations.active.memtable)
            self._check_usable()
            return self.recent.open(self._pending.last_ticket, self._generations.active.memtable)

    def reach(self, cut: Cut) -> None:
        """Return when every write up to a cut has landed."""
        if self._options.durable:
            self._land(cut.ticket, [])

    def cut_after(self, before: Cut) -> Cut | None:
        """A cut for who has read the region after a cut of its earlier writer: it counts what was
        written since then. None if that is not known, as rows have left memory, or came by a way
        that leaves no rows there: all of these flush what is in memory first."""
        cut = self.open_cut()
        with self._lock:
            rows = self._generations.rows_after(before.memtable, before.rows)
        if rows is None:
            return None
        written = [batch.select(self.recent.primary_key) for batch in rows if batch.num_rows]
        cut.earlier = (*before.earlier, *(Write(0, keys) for keys in written))
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
            with self.enqueue_lock, self._lock:
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


_ENDED = "the claim ended with rows that are in no log: open a new writer"


def landed_cuts(cuts: Mapping[RegionWriter, Cut]) -> dict[RegionWriter, Cut]:
    """The cuts, once all writes up to each of them have landed; without those of writers that have
    stopped, as the call that writes there reports that."""
    result = {}
    for writer, cut in cuts.items():
        with suppress(MemWalError):
            writer.reach(cut)
            result[writer] = cut
    return result


def carried(cuts: Mapping[RegionWriter, Cut], writer: RegionWriter) -> Cut | None:
    """The cut of a region from before a read, for the writer that has the region by now; None if
    nobody knows what others have written there since."""
    if writer in cuts:
        return cuts[writer]
    before = (cut for earlier, cut in cuts.items() if earlier.region_id == writer.region_id)
    return next((after for cut in before if (after := writer.cut_after(cut))), None)
