"""The thread that acts on time thresholds, one for all writers of the process."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from heapq import heapify, heappop, heappush
from threading import TIMEOUT_MAX, Condition, RLock, Thread
from weakref import WeakMethod

from exec_nodes.base.threads import is_over, under_way


class Ticks:
    """Calls a method every `interval_s` seconds, and immediately when woken, until stopped.

    It refers to the method's object weakly, so that a writer that nobody closed is not kept alive.
    All methods are called by one thread, so they must not wait for a store. Their errors are lost.
    """

    def __init__(
        self, call: Callable[[], None], interval_s: float, ticker: Ticker | None = None
    ) -> None:
        self._call = WeakMethod(call)
        self._interval_s = interval_s
        self._ticker = ticker or _ticker(os.getpid())
        self._stopped = False
        self._under_way = RLock()  # held while the method is called
        self.due = 0.0
        self._ticker.add(self, interval_s)

    @property
    def is_over(self) -> bool:
        """Whether nothing is to be called any more."""
        return self._stopped or self._call() is None

    def wake(self) -> None:
        """Make the next call now."""
        self._ticker.add(self, 0.0)

    def stop(self) -> None:
        """Return when the method is not being called, and never will be."""
        if not self._stopped:
            self._stopped = True
            self._ticker.note_stopped()
        with self._under_way:
            pass

    def tick(self) -> None:
        """Call the method, and schedule the next call."""
        with self._under_way, under_way("ticks"):
            call = self._call()
            if self._stopped or call is None or is_over():
                return
            with suppress(Exception):
                call()
            del call
        self._ticker.add(self, self._interval_s)


class Ticker:
    """The thread, which ends when there is nothing to call, and its next calls."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: list[tuple[float, int, Ticks]] = []
        self._numbers = itertools.count()
        # The lock is entered itself: an interrupt within the condition's own `__enter__` would
        # leave it locked.
        self._lock = RLock()
        self._changed = Condition(self._lock)
        self._is_running = False
        self._stopped = 0  # since the heap had none that are over

    def add(self, ticks: Ticks, seconds: float) -> None:
        """Call `ticks` that many seconds from now."""
        with self._lock:
            ticks.due = self._clock() + seconds
            heappush(self._due, (ticks.due, next(self._numbers), ticks))
            if not self._is_running:
                # At the end of the interpreter there are no new threads, and none is needed.
                with suppress(RuntimeError):
                    Thread(target=self._run, name="memwal-ticker", daemon=True).start()
                    self._is_running = True
            self._changed.notify()

    def note_stopped(self) -> None:
        """Note that one is over. They are forgotten when they may be more than half of the heap:
        the call of one that has a long interval may be hours away."""
        with self._lock:
            self._stopped += 1
            if 2 * self._stopped > len(self._due):
                self._due = [call for call in self._due if not is_past(call[0], call[2])]
                heapify(self._due)
                self._stopped = 0
                self._changed.notify()

    def _run(self) -> None:
        while (ticks := self._next()) is not None:
            ticks.tick()
            del ticks

    def _next(self) -> Ticks | None:
        """Wait for calls that are due and return them; None if nothing is left to call."""
        with self._lock:
            while isinstance(first := self.first(), float):
                self._changed.wait(min(first, TIMEOUT_MAX))
            self._is_running = first is not None
            return first

    def first(self) -> Ticks | float | None:
        """Take the calls that are due, or return the seconds until the next one."""
        with self._lock:
            while self._due:
                due, _, ticks = self._due[0]
                if not (past := is_past(due, ticks)) and (remaining := due - self._clock()) > 0:
                    return remaining
                heappop(self._due)
                if not past:
                    return ticks
            return None


def is_past(due: float, ticks: Ticks) -> bool:
    """Whether nothing is to be called at a time of the heap: it is over, or was woken before."""
    return ticks.is_over or ticks.due != due


@lru_cache(maxsize=1)
def _ticker(_: int) -> Ticker:
    # One for each process: a fork takes no threads along.
    return Ticker()
