"""The unflushed generations of a region: the active MemTable and sealed ones.

Nothing here locks: the region writer holds its lock around every call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from exec_nodes.resident.store import STORE
from memwal_sql.errors import MemWalError
from memwal_sql.state.batch_marks import BatchMark
from memwal_sql.state.memtable import MemTable
from memwal_sql.state.replay import MakeMemTable, ReplayedMemTable
from memwal_sql.state.tail import Mark
from memwal_sql.storage.records.intent import Intent
from memwal_sql.storage.records.transactions import Part
from memwal_sql.write.back_pressure import MemoryBudget
from memwal_sql.write.options import WriterOptions


@dataclass(slots=True, eq=False)
class OpenGeneration(ReplayedMemTable):
    """An unflushed MemTable and its entries in the WAL.

    Attributes:
        unlanded: the number of its writes that are pending or on their way to the WAL.
        born: the time of its first row.
        sealed: whether it takes no new writes.
        submitted: whether the flusher has it.
        intent: whether an intent is on its way, whose transaction is undecided.
    """

    unlanded: int = 0
    born: float = 0.0
    sealed: bool = False
    submitted: bool = False
    intent: bool = False


@dataclass(slots=True, eq=False)
class PendingWrite:
    """Rows that go into one WAL entry together.

    Attributes:
        size: bytes in memory.
        generation: its generation; a durable write gets it with its entry.
        ticket: its place in the order of writing, from 1.
        since: the time of the call.
        position: the position of its entry, once that has landed.
        error: the reason why the entry has not landed, or may not have.
        staged: the batch that the rows were staged as; its rows share entries with no others.
        is_intent: whether a transaction writes its entry, which shares it with no other write.
        intent: what its entry says of the transaction, once it is being put.
        is_abandoned: of an intent: whether it was given up before its turn came.
    """

    batch: pa.RecordBatch
    size: int
    generation: OpenGeneration | None = None
    ticket: int = 0
    since: float = 0.0
    position: int = 0
    error: MemWalError | None = None
    staged: BatchMark | None = None
    is_intent: bool = False
    intent: Intent | None = None
    is_abandoned: bool = False


class OpenGenerations:
    """Unflushed generations, ascending; the last one is active, the others are sealed. `flushed` is
    the position of the last entry of those that were flushed, 0 without any.

    `submit` gets every sealed MemTable once, in order. `pass_over` gets the position of a committed
    intent up to which nothing is unflushed.
    """

    def __init__(
        self,
        *,
        replayed: Sequence[ReplayedMemTable],
        current_generation: int,
        make_memtable: MakeMemTable,
        submit: Callable[[ReplayedMemTable], None],
        pass_over: Callable[[int], None],
        options: WriterOptions,
        budget: MemoryBudget,
        clock: Callable[[], float],
    ) -> None:
        self._make_memtable = make_memtable
        self._submit = submit
        self._pass_over = pass_over
        self._options = options
        self._budget = budget
        self._clock = clock
        now = clock()
        self._open = [
            OpenGeneration(g.memtable, g.last_position, g.entries, g.published, g.marks, born=now)
            for g in replayed or [ReplayedMemTable(make_memtable(current_generation))]
        ]
        for older in self._open[:-1]:
            older.sealed = True
        budget.add(self.bytes)
        self._released = False
        self.flushed = 0
        self.last_transaction = max(g.last_transaction for g in self._open)

    def start(self) -> None:
        """Flush the MemTables that a replay has sealed or filled."""
        self.seal_if_full()
        self._submit_sealed()

    @property
    def active(self) -> OpenGeneration:
        """The one that takes new rows."""
        return self._open[-1]

    @property
    def oldest(self) -> int:
        """The lowest generation that is not flushed."""
        return self._open[0].memtable.generation

    @property
    def memtables(self) -> list[MemTable]:
        """All MemTables, ascending by generation."""
        return [generation.memtable for generation in self._open]

    def marks(self, since: int) -> tuple[Mark, ...]:
        """The committed intents above a position, ascending."""
        return tuple(
            [
                m
                for g in self._open
                if g.last_transaction > since
                for m in g.marks
                if m.position > since
            ]
        )

    @property
    def bytes(self) -> int:
        """Memory of all MemTables."""
        return sum(generation.memtable.bytes for generation in self._open)

    @property
    def is_old(self) -> bool:
        """Whether the first row of the active MemTable is as old as one may be."""
        age = self._options.memtable_age_s
        active = self.active
        has_rows = active.memtable.rows > 0
        return age is not None and has_rows and self._clock() - active.born >= age

    def room_for(self, rows: int, size: int) -> OpenGeneration:
        """The active generation, after sealing the one before if `rows` more, `size` bytes of them,
        are too many."""
        memtable, options = self.active.memtable, self._options
        if memtable.rows and (
            memtable.rows + rows > options.memtable_rows
            or memtable.bytes + size > options.memtable_bytes
        ):
            self.seal()
        return self.active

    def insert(
        self,
        into: OpenGeneration,
        batch: pa.RecordBatch,
        size: int,
    ) -> None:
        """Add rows, `size` bytes of them; to a sealed generation too as long as entries of it are
        on their way."""
        memtable = into.memtable
        before = memtable.bytes
        if memtable.rows == 0:
            into.born = self._clock()
        memtable.append(batch, size)
        if not self._released:
            self._budget.add(memtable.bytes - before)

    def landed(
        self, generation: OpenGeneration, writes: Sequence[PendingWrite], position: int
    ) -> None:
        """An entry with some writes of `generation` is in the WAL at `position`."""
        if (staged := writes[0].staged) is not None:
            generation.published[staged.query_id] = staged.batch_id
        generation.unlanded -= len(writes)
        generation.last_position = position
        generation.entries += 1
        self.seal_if_full()
        self._submit_sealed()

    def begin_intent(self, rows: int, size: int) -> OpenGeneration:
        """The generation of an intent with so many rows, which is not flushed until `end_intent`:
        until then nobody knows whether they count."""
        generation = self.room_for(rows, size)
        generation.unlanded += 1
        generation.intent = True
        return generation

    def _mark(
        self, generation: OpenGeneration, position: int, parts: tuple[Part, ...], intent: Intent
    ) -> None:
        """Note a committed intent that is behind the rows of a generation."""
        memtable = generation.memtable
        mark = Mark(position, memtable.generation, memtable.rows, parts, intent.name)
        generation.marks.append(mark)
        self.last_transaction = position

    def note_without_rows(self, position: int, parts: tuple[Part, ...], intent: Intent) -> None:
        """A committed intent without rows is in the WAL at `position`."""
        active = self.active
        self._mark(active, position, parts, intent)
        active.last_position = position
        active.entries += 1
        self.seal_if_full()

    def passed(self, position: int) -> None:
        """Replays begin behind a position from now on."""
        self.flushed = max(self.flushed, position)
        for generation in self._open:
            generation.marks = [mark for mark in generation.marks if mark.position > position]

    def end_intent(
        self, generation: OpenGeneration, write: PendingWrite, parts: tuple[Part, ...]
    ) -> None:
        """Add the rows of an intent whose transaction is committed with these parts, or nothing,
        without any, where it was given up."""
        generation.intent = False
        if not parts or write.intent is None:
            generation.unlanded -= 1
            self._submit_sealed()
            return
        self._mark(generation, write.position, parts, write.intent)
        self.insert(generation, write.batch, write.size)
        self.landed(generation, [write], write.position)

    def published(self, query_id: str) -> int:
        """The last staged batch of a query in the MemTables; -1 without any."""
        return max(generation.published.get(query_id, -1) for generation in self._open)

    def go_on_at(self, generation: int) -> None:
        """Give new rows a later generation, where there are no rows: those before it are in the
        region, and never were in a MemTable."""
        memtable, marks = self._make_memtable(generation), self.active.marks
        marks = [replace(mark, generation=generation) for mark in marks]
        self._open = [replace(self.active, memtable=memtable, marks=marks)]

    def seal(self) -> None:
        """Begin a new generation, unless the active one has no rows."""
        active = self.active
        # An intent may be given up: then the next entry would skip this generation.
        if active.memtable.rows or active.unlanded > active.intent:
            following = self._make_memtable(active.memtable.generation + 1)
            # A new list, as another thread may iterate over the old one.
            opened = [*self._open, OpenGeneration(following, born=self._clock())]
            # In one statement, as a sealed MemTable is flushed: an interrupt may come between two.
            active.sealed, self._open = True, opened
        self._submit_sealed()  # including those of an interrupted call

    def seal_if_full(self) -> None:
        """Seal the active generation when it has reached a limit. One that has intents without rows
        alone is not flushed: replays begin behind them instead."""
        active, memtable = self.active, self.active.memtable
        if (
            memtable.rows >= self._options.memtable_rows
            or active.entries >= self._options.memtable_entries
            or memtable.bytes >= self._options.memtable_bytes
        ):
            if not memtable.rows and not active.unlanded and active.marks and len(self._open) == 1:
                active.entries = 0
                self._pass_over(active.last_position)
            self.seal()

    def remove(self, memtable: MemTable) -> None:
        """Forget a committed generation."""
        self.flushed = max(
            [self.flushed, *(g.last_position for g in self._open if g.memtable is memtable)]
        )
        self._open = [
            generation for generation in self._open if generation.memtable is not memtable
        ]
        STORE.evict(memtable.identity)
        if not self._released:
            self._budget.release(memtable.bytes)

    def release(self) -> None:
        """Stop counting these bytes: the writer is closed, or the region is handed over."""
        if not self._released:
            self._released = True
            self._budget.release(self.bytes)

    def replayed(self) -> list[ReplayedMemTable]:
        """The MemTables that have rows, as a replay of the log gives them."""
        return [
            ReplayedMemTable(g.memtable, g.last_position, g.entries, {**g.published}, [*g.marks])
            for g in self._open
            if g.memtable.rows
        ]

    def rows_after(self, memtable: MemTable | None, rows: int) -> list[pa.RecordBatch] | None:
        """What was written after the first `rows` of an unflushed MemTable, at least 1. None if it
        is none of these, and for a MemTable without rows."""
        memtables = self.memtables
        if memtable is None or not rows or memtable not in memtables:
            return None
        later = memtables[memtables.index(memtable) + 1 :]
        return [*memtable.rows_from(rows), *(b for table in later for b in table.rows_from(0))]

    def _submit_sealed(self) -> None:
        # In order, and only when all entries have landed: the commit moves the replay position
        # behind the last of them (protocol rule 7).
        for generation in self._open:
            if not generation.sealed or generation.unlanded:
                return
            if not generation.submitted:
                self._submit(generation)
                generation.submitted = True  # not before: an interrupt (Ctrl-C) may come anywhere


def memtable_slices(
    batch: pa.RecordBatch, options: WriterOptions
) -> list[tuple[pa.RecordBatch, int]]:
    """The batch in slices that fit into a MemTable each, with their bytes."""
    size = batch.nbytes  # asked once: it costs as much as a lock
    if batch.num_rows <= options.memtable_rows and size <= options.memtable_bytes:
        return [(batch, size)]
    parts = max(-(-batch.num_rows // options.memtable_rows), -(-size // options.memtable_bytes))
    rows = -(-batch.num_rows // min(parts, batch.num_rows))
    slices = [batch.slice(start, rows) for start in range(0, batch.num_rows, rows)]
    return [(part, part.nbytes) for part in slices]
