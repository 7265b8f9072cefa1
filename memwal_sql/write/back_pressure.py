"""Back-pressure: a limit on the unflushed bytes of all regions of one table writer, copies that are
being written included."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock

from exec_nodes.base.threads import StateCondition
from memwal_sql.errors import BackPressureError
from memwal_sql.storage.deadlines import check_deadline, remaining
from memwal_sql.telemetry import BACK_PRESSURE_SECONDS, NONE, UNFLUSHED_BYTES, Attributes, timed
from memwal_sql.write.result import NOT_WRITTEN

# Seconds after which a waiting write asks again for a flush.
_ASK_AGAIN_SECONDS = 0.2


class MemoryBudget:
    """Counts unflushed bytes in memory. Safe to use from several threads."""

    def __init__(
        self,
        limit: int,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
        attributes: Attributes = NONE,
    ) -> None:
        """`attributes` are those of its metrics."""
        self._limit = limit
        self._timeout_s = timeout_s
        self._clock = clock
        self._attributes = attributes
        self._used = 0
        self._lock = RLock()
        self._freed = StateCondition(self._lock)

    def __del__(self) -> None:
        if self._used:  # of writers that were not closed
            UNFLUSHED_BYTES(-self._used, self._attributes)

    @property
    def used(self) -> int:
        """Bytes counted now."""
        return self._used

    def add(self, size: int) -> None:
        """Count bytes that were written; never waits, as the rows are in the WAL already."""
        with self._lock:
            self._used += size
        UNFLUSHED_BYTES(size, self._attributes)

    def release(self, size: int) -> None:
        """Stop counting bytes that were flushed."""
        with self._lock:
            self._used -= size
            self._freed.tell()
        UNFLUSHED_BYTES(-size, self._attributes)

    @contextmanager
    def copy(self, size: int) -> Iterator[None]:
        """Count a copy for as long as it exists."""
        self.add(size)
        try:
            yield
        finally:
            self.release(size)

    def take_room(self, size: int, relieve: Callable[[], None]) -> None:
        """Count `size` more bytes as soon as they fit, until `release`: several callers that wait
        for the store do not find the same room. Raises as `wait_for_room`."""
        check_deadline(NOT_WRITTEN)
        while True:
            with self._lock:
                if self._fits(size):
                    self.add(size)
                    return
            self.wait_for_room(size, relieve)

    def wait_for_room(self, size: int, relieve: Callable[[], None]) -> None:
        """Return when `size` more bytes fit, or when nothing is counted. `relieve` is called to
        start a flush; its errors end the wait. Raises BackPressureError after the time limit, and
        DeadlineExceededError.
        """
        check_deadline(NOT_WRITTEN)
        if self._fits(size):
            return
        with timed(BACK_PRESSURE_SECONDS, self._attributes):
            self._wait(size, relieve)

    def _wait(self, size: int, relieve: Callable[[], None]) -> None:
        deadline = self._clock() + self._timeout_s
        while True:
            relieve()
            longest = min(_ASK_AGAIN_SECONDS, self._timeout_s, remaining())
            self._freed.wait_for(lambda: self._fits(size), longest)
            if self._fits(size):
                return
            check_deadline(NOT_WRITTEN)
            if self._clock() >= deadline:
                raise BackPressureError(
                    f"{self._used} bytes wait to be flushed, the limit is {self._limit} "
                    f"(max_unflushed_bytes), and {self._timeout_s} s were not enough to make "
                    f"room; {NOT_WRITTEN}: try again, write more slowly "
                    "or raise the limit"
                )

    def _fits(self, size: int) -> bool:
        return self._used == 0 or self._used + size <= self._limit
