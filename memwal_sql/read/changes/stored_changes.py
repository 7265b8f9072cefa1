"""A piece of a change feed as it is stored."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from memwal_sql.read.changes.offsets import ChangeOffset


@dataclass(frozen=True, slots=True)
class StoredChanges:
    """A WAL entry, or a part of a generation that was published past the WAL.

    Attributes:
        batch: its rows, in a MemTable's schema.
        position: that of the entry, or of the last one before the generation.
        generation: the generation that is reached by reading it.
        before: the place that was reached before the entry, or before the whole generation.
        transaction: the id of the transaction that wrote it, if any.
        log: whether it is an entry.
    """

    batch: pa.RecordBatch
    position: int
    generation: int
    before: ChangeOffset
    transaction: str | None = None
    log: bool = True

    @property
    def place(self) -> ChangeOffset:
        """The place that is reached by reading it."""
        return ChangeOffset(self.position, self.generation)

    @property
    def whole(self) -> tuple[bool, int | None]:
        """Tells the generation that it belongs to from others."""
        return self.log, self.generation if self.log else self.before.generation
