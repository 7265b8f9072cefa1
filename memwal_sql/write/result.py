"""Results of writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from memwal_sql.write.options import WriterOptions

DURABLE = "durable"
NOT_WRITTEN = "these rows were not written"
"""What errors say of a call that has written nothing."""


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a call.

    Attributes:
        rows: rows written, tombstones for deletes; one per key for calls that read rows first.
        reached: `"durable"`: the rows are in the WAL, and every reader sees them. `"visible"`:
            readers of this process see them, a crash may lose them. `"buffered"`: they are taken,
            to be indexed and written later.
        positions: the WAL position of the last entry, by region; empty for buffered writes.
        skipped: the number of rows left as they were, as their condition was not true.
        not_found: the number of keys without a row, of a delete under a condition.
        atomic: whether every strong reader is sure to see all of the rows or none: not of plain
            writes, which are written region by region, and of statements that are too large.
    """

    rows: int
    reached: str
    positions: Mapping[UUID, int] = field(default_factory=dict)
    skipped: int = 0
    not_found: int = 0
    atomic: bool = True

    def __repr__(self) -> str:
        parts = [f"rows={self.rows}", f"reached={self.reached!r}", f"regions={len(self.positions)}"]
        if self.skipped:
            parts.append(f"skipped={self.skipped}")
        if self.not_found:
            parts.append(f"not_found={self.not_found}")
        return f"WriteResult({', '.join(parts)})"


def reached(options: WriterOptions) -> str:
    """The value of `WriteResult.reached` for a write with these options."""
    if options.durable:
        return DURABLE
    return "visible" if options.indexed else "buffered"
