"""The writes of a region that are not in the WAL yet, and which of them the next entry takes.

Specification 2, "WAL Flush"; protocol rule 6. Nothing here locks: the region writer holds its lock
around every call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf

from memwal_sql.write.generations import OpenGeneration, OpenGenerations, PendingWrite
from memwal_sql.write.options import WriterOptions

# Seconds that putting an entry may take, well within the store's time limit (30 s) even on a slow
# link: an entry that timed out may have landed, so the next attempt has the same size.
_ENTRY_SECONDS = 5.0
_FIRST_ENTRY_BYTES = 1 << 20
_LEAST_ENTRY_BYTES = 1 << 18


class PendingWrites:
    """A queue of writes, in the order of writing."""

    def __init__(self, options: WriterOptions, clock: Callable[[], float]) -> None:
        self._options = options
        self._clock = clock
        self._writes: deque[PendingWrite] = deque()
        self._bytes = 0
        self._tickets = 0
        self.intents = 0  # among the writes, given up or not
        self._entry_bytes: float = _FIRST_ENTRY_BYTES

    @property
    def last_ticket(self) -> int:
        """The ticket of the newest write, even if it is not pending any more; 0 without any."""
        return self._tickets

    @property
    def rows(self) -> int:
        """How many rows are pending, besides those of transactions."""
        return sum(write.batch.num_rows for write in self._writes if not write.is_intent)

    @property
    def full(self) -> bool:
        """Whether the writes suffice for an entry, by bytes or by number."""
        options = self._options
        return (
            self._bytes >= options.wal_flush_bytes or len(self._writes) >= options.wal_flush_writes
        )

    @property
    def due(self) -> bool:
        """Whether the writes suffice for an entry, the first one has waited long enough, or its
        generation waits for it to be flushed."""
        if not self._writes:
            return False
        first = self._writes[0]
        sealed = first.generation is not None and first.generation.sealed
        waited = self._clock() - first.since
        return sealed or self.full or waited >= self._options.wal_flush_interval_s

    @property
    def is_blocked(self) -> bool:
        """Whether the next write is an intent, which only its transaction takes."""
        return bool(self._writes) and self._writes[0].is_intent and not self._writes[0].is_abandoned

    def drop_abandoned(self) -> int:
        """Drop intents that were given up and would be next; the last one's ticket, or 0."""
        ticket = 0
        while self._writes and self._writes[0].is_abandoned:
            ticket = self._writes[0].ticket
            self.take_intent()
        return ticket

    def take_intent(self) -> None:
        """Take the next write, an intent."""
        self.intents -= 1
        self._bytes -= self._writes.popleft().size

    def add(self, write: PendingWrite) -> None:
        """Append a write, which gets its ticket."""
        self._tickets += 1
        write.ticket, write.since = self._tickets, self._clock()
        self.intents += write.is_intent
        self._writes.append(write)
        self._bytes += write.size

    def take_entry(self, generations: OpenGenerations) -> tuple[OpenGeneration, list[PendingWrite]]:
        """Take the writes of the next entry: at least one, and all of one generation."""
        options, first = self._options, self._writes[0]
        generation = first.generation or generations.room_for(first.batch.num_rows, first.size)
        room = options.memtable_rows - (0 if first.generation else generation.memtable.rows)
        most = min(options.wal_flush_bytes, self._entry_bytes)
        if first.generation is None:
            most = min(most, options.memtable_bytes - generation.memtable.bytes)
        group: list[PendingWrite] = []
        size = 0
        while self._writes:
            write = self._writes[0]
            if write.is_intent:
                break
            room -= write.batch.num_rows
            size += write.size
            if group and (
                size > most
                or write.staged != first.staged
                or (room < 0 if write.generation is None else write.generation is not generation)
            ):
                break
            group.append(self._writes.popleft())
            self._bytes -= write.size
            if write.generation is None:
                write.generation = generation
                generation.unlanded += 1
        return generation, group

    def note_speed(self, group: list[PendingWrite], seconds: float) -> None:
        """Note how long it took to put the entry of these writes: the next one is only as large as
        can be put in `_ENTRY_SECONDS`."""
        size = sum(write.size for write in group)
        bound = size * _ENTRY_SECONDS / seconds if seconds > 0 else inf
        self._entry_bytes = max(_LEAST_ENTRY_BYTES, bound)

    def clear(self) -> None:
        """Drop all writes."""
        self._writes.clear()
        self._bytes = self.intents = 0
