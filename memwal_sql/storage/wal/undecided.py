"""Intents that may still be committed (protocol rule T6).

Nobody appends to a log behind an intent before its record is there, or before its transaction is
given up. So an intent without a record is undecided only at the end of a log; the verdict of
another one has to be asked for again, as its record may have come before the entry behind it.
Fences of claims come at any time, and say nothing: the claimant has yet to decide.
"""

from __future__ import annotations

from itertools import count

from memwal_sql.errors import TornEntryError
from memwal_sql.storage.wal.log import Wal, WalEntry


def is_undecided(wal: Wal, entry: WalEntry) -> bool:
    """Whether an entry is an intent that may still be committed. Raises as `Verdicts`."""
    if wal.verdict(entry) is not None:
        return False
    for position in count(entry.position + 1):
        try:
            behind = wal.read(position)
        except TornEntryError:
            return True
        if behind is None:
            return True
        if behind.batch is not None or behind.intent is not None:
            return False
    return False
