"""Results of writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from memwal_sql.write.options import WriterOptions

DURABLE = "durable"


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a call.

    Attributes:
        rows: rows written, tombstones for deletes; of calls that read rows first, one a key.
        reached: `"durable"`: in the WAL, every reader sees it. `"visible"`: readers of this process
            see it, a crash may lose it. `"buffered"`: taken, to be indexed and written later.
        positions: by region, the WAL position of its last entry; empty for buffered writes.
        skipped: rows left as they were, as the condition was not true for them.
        not_found: keys to delete under a condition that had no row.
    """

    rows: int
    reached: str
    positions: Mapping[UUID, int] = field(default_factory=dict)
    skipped: int = 0
    not_found: int = 0

    def __repr__(self) -> str:
        parts = [f"rows={self.rows}", f"reached={self.reached!r}", f"regions={len(self.positions)}"]
        if self.skipped:
            parts.append(f"skipped={self.skipped}")
        if self.not_found:
            parts.append(f"not_found={self.not_found}")
        return f"WriteResult({', '.join(parts)})"


def reached(options: WriterOptions) -> str:
    """What a write has reached when it returns, as `WriteResult.reached` says it."""
    if options.durable:
        return DURABLE
    return "visible" if options.indexed else "buffered"
