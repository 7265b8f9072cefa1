"""The thread that acts on time thresholds: buffered writes and the age of MemTables."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from weakref import WeakMethod


class Background:
    """Calls a method every `interval_s` seconds, and at once when woken, until stopped.

    It holds its object weakly: a writer that nobody closed is not kept alive by its own thread.
    """

    def __init__(self, call: Callable[[], None], interval_s: float) -> None:
        self._call = WeakMethod(call)
        self._interval_s = interval_s
        self._woken = Event()
        self._stopped = False
        self._thread = Thread(target=self._run, name="memwal-writer", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Let the call happen now."""
        self._woken.set()

    def stop(self) -> None:
        """Return when the thread has ended."""
        self._stopped = True
        self._woken.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._woken.wait(self._interval_s)
            self._woken.clear()
            call = self._call()
            if self._stopped or call is None:
                return
            call()
            del call
