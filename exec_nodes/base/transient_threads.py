"""Threads that end when there is nothing to do: a thousand idle writers have none."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from threading import RLock, Thread

from exec_nodes.base.threads import Changes, beyond_signals


class TransientThreads:
    """Makes calls, which raise nothing, in their order on up to `most` threads, which the
    interpreter waits for.

    Once it ends it starts no threads any more, while functions of `atexit` may still write: then
    calls stay queued, for `make_queued` and `shutdown`.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._queued: deque[Callable[[], None]] = deque()
        self._running = 0
        self._lock = RLock()
        self._ended = Changes(self._lock)

    @property
    def is_busy(self) -> bool:
        """Whether one of the threads makes a call."""
        return self._running > 0

    def submit(self, call: Callable[[], None]) -> None:
        """Let a call be made some time soon; the caller may hold locks that it takes."""
        # An interrupt within `Thread.start` would leave unknown whether the thread runs.
        beyond_signals(partial(self._submit, call))

    def make_queued(self) -> None:
        """Make the calls here that no thread could be started for; the caller must hold no lock
        that they take."""
        while not self._running and (call := self._next()) is not None:
            call()

    def shutdown(self) -> None:
        """Return when every call is made that was submitted. As for `make_queued`."""
        self.make_queued()
        self._ended.wait_for(lambda: not self._running)

    def _submit(self, call: Callable[[], None]) -> None:
        with self._lock:
            self._queued.append(call)
            if self._running == self._most:
                return
            try:
                Thread(target=self._run, name=self._name).start()
                self._running += 1  # the thread does not end before the lock is free
            except RuntimeError:
                pass

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
