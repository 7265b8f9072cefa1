"""Threads that end when there is nothing to do: a thousand idle writers have none."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from threading import Lock, Thread
from typing import Any, TypeVar

from exec_nodes.base.threads import Changes, beyond_signals

T = TypeVar("T")


class TransientThreads(Executor):
    """Makes calls in their order, on up to `most` threads, which the interpreter waits for.

    Once the interpreter ends it starts no threads any more, while functions of `atexit` may still
    write: then a call is made in the thread that submits it.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._waiting: deque[Callable[[], None]] = deque()
        # Counted by the threads themselves: whoever submits may be interrupted anywhere.
        self._running = 0
        self._lock = Lock()
        self._changes = Changes(self._lock)

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way, or waits."""
        return bool(self._waiting) or self._running > 0

    def submit(self, call: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Make a call some time soon."""
        future = Future[T]()
        self._waiting.append(partial(_make, future, partial(call, *args, **kwargs)))
        self._start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Return when every call is made that was submitted."""
        if cancel_futures:
            self._waiting.clear()
        if wait:
            self._start()  # whoever submitted may have been interrupted before that
            self._changes.wait_for(lambda: not self.is_busy)

    def _start(self) -> None:
        """Start a thread if a call waits and there may be another one."""
        with self._lock:
            if not self._waiting or self._running == self._most:
                return
        try:
            beyond_signals(Thread(target=self._run, name=self._name).start)
        except RuntimeError:
            self._run()

    def _run(self) -> None:
        with self._lock:
            if self._running == self._most:
                return
            self._running += 1
        while (call := self._next()) is not None:
            call()

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._running -= 1
            self._changes.tell()
            return None


def _make(future: Future[T], call: Callable[[], T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)
