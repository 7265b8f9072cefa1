"""The order of a log's entries."""

from __future__ import annotations

from collections.abc import Container

from memwal_sql.errors import CorruptFileError, TornEntryError
from memwal_sql.storage.records.intent import TransactionName
from memwal_sql.storage.wal.log import Wal, WalEntry


class Order:
    """Sees to it that entries follow each other as a WAL's do (protocol rules 5 and 9).

    `torn` are the torn entries so far that no fence has listed as skipped; `epoch` is the highest
    epoch of a fence, 0 without any, and `fence_is_last` says whether nothing follows a fence.
    """

    def __init__(self, wal: Wal, flushed: Container[TransactionName] = ()) -> None:
        """`flushed` are transactions that count, whatever has become of their records."""
        self.torn: dict[int, TornEntryError] = {}
        self.epoch = 0
        self.fence_is_last = False
        self._wal = wal
        self._flushed = flushed

    def rows_of(self, position: int, entry: WalEntry | TornEntryError) -> WalEntry | None:
        """The entry if it has rows that count. Raises CorruptFileError naming the file."""
        self.fence_is_last = (
            not isinstance(entry, TornEntryError) and entry.is_fence and entry.intent is None
        )
        if isinstance(entry, TornEntryError):
            self.torn[position] = entry
            return None
        if entry.batch is None:
            self.epoch = max(self.epoch, entry.writer_epoch)
            for skipped in entry.skipped:
                self.torn.pop(skipped, None)
            return None
        if self.torn:
            # Whoever wrote these rows had been told that the torn entry was complete.
            raise next(iter(self.torn.values()))
        if entry.writer_epoch < self.epoch:
            raise CorruptFileError(
                f"{self._wal.path(position)} was written by epoch {entry.writer_epoch} above the "
                f"fence of epoch {self.epoch}"
            )
        is_flushed = entry.intent is not None and entry.intent.name in self._flushed
        return entry if is_flushed or self._wal.verdict(entry) else None
