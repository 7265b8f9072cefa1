"""The meaning of a torn entry (protocol rule 9): it counts as missing only if nobody was told that
it is durable.

Fences list torn entries as skipped. Until one does, a torn entry with nothing but fences and other
torn ones above it may be under way or damaged, and nobody may record an end of the log above it:
whatever is below a recorded end counts as complete.
"""

from __future__ import annotations

from itertools import count

from memwal_sql.errors import TornEntryError
from memwal_sql.storage.wal.log import Wal, WalEntry


def whole_end(wal: Wal, first: int, end: int, acknowledged: int) -> int:
    """Where a log ends for those who record it: `end`, or the lowest torn entry from `first` on
    that no fence lists and that has no rows above it.

    Raises TornEntryError for one up to `acknowledged`, the last position that is known to have been
    complete, and CorruptFileError.
    """
    skipped: set[int] = set()
    for position in range(end - 1, first - 1, -1):
        try:
            entry = wal.read(position)
        except TornEntryError:
            if position in skipped:
                continue
            if position <= acknowledged:
                raise
            end = position
        else:
            if entry is None or not entry.is_fence:
                break
            skipped.update(entry.skipped)
    return end


def is_skipped(wal: Wal, position: int) -> bool:
    """Whether a fence lists the torn entry at `position`; it comes before any rows above it."""
    for above in count(position + 1):
        entry: WalEntry | None
        try:
            entry = wal.read(above)
        except TornEntryError:
            continue
        if entry is None or not entry.is_fence:
            return False
        if position in entry.skipped:
            return True
    return False
