"""The unflushed rows of a region as one look has them, and what is needed to shorten them.

A snapshot of several regions has a transaction in all of them or in none: where one region was
looked at too early, the tails of the others are cut before the intent (protocol rule T12).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from exec_nodes.sources.memtable_source import MemTableSource
from memwal_sql.storage.records.intent import TransactionName
from memwal_sql.storage.records.transactions import Part


@dataclass(frozen=True, slots=True)
class Mark:
    """A committed intent among unflushed rows.

    Attributes:
        position: its WAL position.
        generation: the MemTable that has its rows.
        rows: the number of rows in that MemTable before them.
        parts: everything that the transaction has written; empty where its record is gone.
        transaction: its name.
    """

    position: int
    generation: int
    rows: int
    parts: tuple[Part, ...]
    transaction: TransactionName


@dataclass(frozen=True, slots=True)
class Tail:
    """Unflushed rows.

    Attributes:
        memtables: ascending by generation.
        end: the last WAL position that is flushed, or whose entry was taken in, or passed over as
            it does not count.
        fence: the last position of a claim's fence up to there, 0 without one.
        marks: the committed intents that are new in this look, ascending by position.
        is_quiet: whether no entry was passed over, which may count after all.
    """

    memtables: tuple[MemTableSource, ...] = ()
    end: int = 0
    fence: int = 0
    marks: tuple[Mark, ...] = ()
    is_quiet: bool = True

    def before(self, mark: Mark) -> Tail:
        """The rows that were there before an intent."""
        earlier = [m for m in self.memtables if m.generation < mark.generation]
        cut = [m.first(mark.rows) for m in self.memtables if m.generation == mark.generation]
        marks = tuple(m for m in self.marks if m.position < mark.position)
        return replace(self, memtables=(*earlier, *cut), end=mark.position - 1, marks=marks)
