"""The end of a region's log, for readers that find no entry at a position (protocol rule 5)."""

from __future__ import annotations

import time
from collections.abc import Callable

from memwal_sql.storage.wal.log import Wal

_LISTED_SECONDS = 30.0


class LogEnd:
    """Finds out whether a missing entry is the end of the log or was lost, as far as that is cheap.

    On a local disk the next position is checked each time; on an object store, where that would be
    a request, the log is listed every 30 seconds.
    """

    def __init__(self, wal: Wal, clock: Callable[[], float] = time.monotonic) -> None:
        self._wal = wal
        self._clock = clock
        self._listed = clock()
        self._last = 0

    def last(self) -> int:
        """The last position of the log, 0 if it is empty; one listing."""
        self._listed, self._last = self._clock(), max(self._wal.positions(), default=0)
        return self._last

    def is_passed(self, position: int) -> bool:
        """Whether entries exist, or have existed, above a position without an entry: the entry was
        written since, flushed and collected since, or is lost."""
        if not self._wal.remote:
            return self._wal.exists(position + 1)
        if self._clock() - self._listed > _LISTED_SECONDS:
            self.last()
        return self._last > position
