"""Calls in their order on a few of the process's threads: a thousand idle writers have none."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from threading import RLock

from exec_nodes.base.threads import StateCondition, beyond_signals, start_call


class TransientThreads:
    """Makes calls, which raise nothing, in their order on up to `most` threads at once.

    The exit of the process waits for them. From Python 3.12 on no thread starts once the
    interpreter ends, while functions of `atexit` may still write: then calls stay queued, for
    `make_queued` and `shutdown`.
    """

    def __init__(self, most: int, what: str) -> None:
        """`what` the calls are, in the plural: see `Threads.start`."""
        self._most = most
        self._what = what
        self._queued: deque[Callable[[], None]] = deque()
        self._running = 0
        self._lock = RLock()
        self._ended = StateCondition(self._lock)

    @property
    def is_busy(self) -> bool:
        """Whether one of the threads makes a call."""
        return self._running > 0

    def submit(self, call: Callable[[], None]) -> None:
        """Let a call be made some time soon; the caller may hold locks that it takes."""
        # An interrupt within `start_call` would leave unknown whether the thread runs.
        beyond_signals(partial(self.submit_here, call))

    def submit_here(self, call: Callable[[], None]) -> None:
        """As `submit`, without another thread: for callers that no signal handler interrupts, or
        whose calls it ends."""
        with self._lock:
            self._queued.append(call)
            if self._running == self._most:
                return
            try:
                start_call(self._run, self._what)
                self._running += 1  # the thread does not end before the lock is free
            except RuntimeError:
                pass

    def make_queued(self) -> None:
        """Make the calls here that no thread could be started for; the caller must hold no lock
        that they take."""
        while not self._running and (call := self._next()) is not None:
            call()

    def shutdown(self) -> None:
        """Return when every call is made that was submitted. As for `make_queued`."""
        self.make_queued()
        self._ended.wait_for(lambda: not self._running)

    def _run(self) -> None:
        while True:
            with self._lock:
                call = self._next()
                if call is None:
                    self._running -= 1
                    self._ended.tell()
                    return
            call()
            del call

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            return self._queued.popleft() if self._queued else None
