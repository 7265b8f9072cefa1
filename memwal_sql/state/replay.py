"""Rebuilding MemTables from the WAL (specification 1, "WAL Replay"; protocol rules 6 and 9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import TypeVar

from exec_nodes.base.tasks import map_concurrently
from memwal_sql.errors import CorruptFileError, MemWalError, TornEntryError
from memwal_sql.state.batch_marks import decode_mark
from memwal_sql.state.entry_rows import entry_rows
from memwal_sql.state.memtable import FindTexts, MemTable
from memwal_sql.state.tail import Mark
from memwal_sql.storage.records.intent import MOST_NOTES, Intent, Note, TransactionName
from memwal_sql.storage.wal.log import Wal, WalEntry
from memwal_sql.storage.wal.order import Order
from planner.model import TableInfo

_READ_AHEAD = 16

MakeMemTable = Callable[[int], MemTable]
Entries = Iterator[tuple[int, WalEntry | TornEntryError | None]]
E = TypeVar("E", bound=MemWalError)


def memtables_of(info: TableInfo, region: str, texts: FindTexts = tuple) -> MakeMemTable:
    """Makes empty MemTables of the region of this name, by generation; `texts` as there."""
    return lambda generation: MemTable(region, generation, info.schema, info.primary_key, texts)


@dataclass(slots=True)
class ReplayedMemTable:
    """A MemTable as its writer left it, the position of its last WAL entry, and how many it has.

    `published` maps a query's id to the last of its staged batches that the entries hold;
    `marks` are their committed intents.
    """

    memtable: MemTable
    last_position: int = 0
    entries: int = 0
    published: dict[str, int] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)

    @property
    def last_transaction(self) -> int:
        """The position of its last committed intent, 0 without one."""
        return self.marks[-1].position if self.marks else 0

    @property
    def transactions(self) -> list[TransactionName]:
        """Those of its committed intents."""
        return [mark.transaction for mark in self.marks]


class Replay:
    """Takes entries in the order of their positions and checks that they make sense.

    `memtables` ascend by generation. What `torn` returns are positions of entries that were cut
    off while they were written, that no fence has recorded as skipped, and above which no row was
    written: the claimer may skip them if it records that in a fence. Intents that are not committed
    are passed over, their generation too. `fence` is the last position of a claim's fence. `notes`
    say of intents, by position, if they count, where no entry behind them does. `last_intent` is
    set if nothing but fences follows it.
    """

    def __init__(
        self,
        wal: Wal,
        current_generation: int,
        make: MakeMemTable,
        memtables: Iterable[ReplayedMemTable] = (),
        notes: Iterable[Note] = (),
    ) -> None:
        """`memtables` hold the rows of earlier entries, and `notes` are of these."""
        self.memtables = list(memtables)
        self.notes = {note.position: note for note in notes}
        self.fence = 0
        self.last_intent: Intent | None = None
        self._wal = wal
        self._current_generation = current_generation
        self._make = make
        self._order = Order(wal)

    def torn(self, acknowledged: int) -> tuple[int, ...]:
        """Positions to be recorded as skipped.

        Raises TornEntryError when one is not above `acknowledged`, the last position that is
        known to have been complete.
        """
        for position, error in self._order.torn.items():
            if position <= acknowledged:
                raise error
        return tuple(self._order.torn)

    @property
    def epoch(self) -> int:
        """The highest epoch of a fence among the entries, 0 without any."""
        return self._order.epoch

    @property
    def fence_is_last(self) -> bool:
        """Whether the last entry is a fence: whoever has claimed the region has not written yet."""
        return self._order.fence_is_last

    def forget_flushed(self, current_generation: int) -> int:
        """Forget the MemTables of generations that are flushed, as `current_generation` is not, and
        return the position of their last entry; 0 without any."""
        flushed = [m for m in self.memtables if m.memtable.generation < current_generation]
        del self.memtables[: len(flushed)]
        self._current_generation = current_generation
        return flushed[-1].last_position if flushed else 0

    def read(self, first: int, end: int) -> int:
        """Take the entries from `first` up to `end`, exclusive; all of them must be there. Returns
        the position of the first intent that is undecided, and takes no more from there; or `end`.
        Raises CorruptFileError naming the file."""
        for position, entry in read_ahead(self._wal, first, end):
            if entry is None:
                raise self._wal.missing(position)
            if isinstance(entry, WalEntry) and self._wal.verdict(entry) is None:
                return position
            self.add(position, entry)
        return end

    def settle(self, first: int, end: int, epoch: int) -> None:
        """As `read`, for a claimant whose fence has landed, and whose epoch is confirmed: it
        decides over intents that are undecided (protocol rule T8)."""
        for position, entry in read_ahead(self._wal, first, end):
            if entry is None:
                raise self._wal.missing(position)
            if isinstance(entry, WalEntry):
                self._wal.settle(entry, epoch)
            self.add(position, entry)

    def add(self, position: int, entry: WalEntry | TornEntryError) -> None:
        """Take the entry at `position`. Raises CorruptFileError naming the file."""
        rows = self._order.rows_of(position, entry)
        if rows is not None:
            self._add_rows(rows, self._memtable_of(position, rows.generation))
        elif isinstance(entry, WalEntry) and entry.is_fence:
            if entry.intent is None:
                self.fence = position
            elif self._wal.verdict(entry):
                into = self._memtable_of(position, None)
                self._mark(entry, into)
                into.last_position = position
                into.entries += 1
        if isinstance(entry, WalEntry):
            if entry.batch is not None or entry.intent is not None:
                self.last_intent = entry.intent
            self._note(entry)

    def _note(self, entry: WalEntry) -> None:
        for note in entry.notes:
            self.notes.pop(note.position, None)
        if entry.intent is not None and (counts := self._wal.verdict(entry)) is not None:
            self.notes[entry.position] = Note(entry.position, entry.intent.name, counts)
            if len(self.notes) > MOST_NOTES:  # native code and older versions write none
                self.notes.pop(min(self.notes))

    def _add_rows(self, entry: WalEntry, into: ReplayedMemTable) -> None:
        memtable, path = into.memtable, self._wal.path(entry.position)
        rows = entry_rows(entry.batch, memtable.schema, memtable.primary_key, path)
        self._mark(entry, into)
        memtable.append(rows)
        into.last_position = entry.position
        into.entries += 1
        mark = decode_mark(entry.batch_id)
        if mark is not None:
            into.published[mark.query_id] = mark.batch_id

    def _mark(self, entry: WalEntry, into: ReplayedMemTable) -> None:
        if entry.intent is None:
            return
        record, memtable = self._wal.record(entry), into.memtable
        parts = () if record is None else record.parts
        name = entry.intent.name
        into.marks.append(Mark(entry.position, memtable.generation, memtable.rows, parts, name))

    def _memtable_of(self, position: int, generation: int | None) -> ReplayedMemTable:
        newest = self.memtables[-1].memtable.generation if self.memtables else None
        if newest is not None and (generation is None or generation <= newest):
            # Native code starts again at the manifest's generation after a replay, and before
            # Lance 14 it left the generation out.
            return self.memtables[-1]
        expected = self._current_generation if newest is None else newest + 1
        if generation is not None and generation > expected:
            raise CorruptFileError(
                f"{self._wal.path(position)} belongs to generation {generation}, "
                f"but no entry before it to generation {expected}"
            )
        self.memtables.append(ReplayedMemTable(self._make(expected), position))
        return self.memtables[-1]


def read_ahead(
    wal: Wal, first: int, end: int | None, read: Mapping[int, WalEntry] | None = None
) -> Entries:
    """The entry at each position from `first` up to `end`, exclusive, or without end; None for a
    missing one. Some have been `read` before.

    On an object store several are read at once; a local file is faster than a thread's turn.
    """
    positions = count(first) if end is None else range(first, end)
    return _read_entries(wal, positions, TornEntryError, read or {})


def read_listed(
    wal: Wal, positions: Sequence[int]
) -> Iterator[tuple[int, WalEntry | MemWalError | None]]:
    """The entry at each of `positions`, or the error of reading it; None if there is none. Reads
    ahead as `read_ahead` does."""
    return _read_entries(wal, positions, MemWalError, {})


def _read_entries(
    wal: Wal, positions: Iterable[int], expected: type[E], read_before: Mapping[int, WalEntry]
) -> Iterator[tuple[int, WalEntry | E | None]]:
    """The entry at each of `positions`; errors of the `expected` kind are returned in its place."""

    def read(position: int) -> WalEntry | E | None:
        try:
            return read_before.get(position) or wal.read(position)
        except expected as error:
            return error

    step, rest = _READ_AHEAD if wal.remote else 1, iter(positions)
    while some := list(islice(rest, step)):
        entries = list(map_concurrently(read, some))
        if wal.remote:
            wal.learn([entry for entry in entries if isinstance(entry, WalEntry)])
        yield from zip(some, entries, strict=True)
