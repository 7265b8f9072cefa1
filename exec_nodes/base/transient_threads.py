"""Threads that end when there is nothing to do: a thousand idle writers have none."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from threading import Condition, RLock, Thread
from typing import Any, TypeVar

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
        self._running = 0
        # Entered itself, as an interrupt within the condition's own entering would leave it locked.
        self._lock = RLock()
        self._ended = Condition(self._lock)

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way, or waits."""
        return self._running > 0

    def submit(self, call: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Make a call some time soon."""
        future = Future[T]()
        with self._lock:
            self._waiting.append(partial(_make, future, partial(call, *args, **kwargs)))
            if self._running == self._most:
                return future
            self._running += 1
            try:
                Thread(target=self._run, name=self._name).start()
                return future
            except RuntimeError:
                pass
            except BaseException:  # an interrupt: who comes next starts one
                self._running -= 1
                raise
        self._run()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Return when every call is made that was submitted."""
        with self._lock:
            if cancel_futures:
                self._waiting.clear()
            while wait and self._running:
                self._ended.wait()

    def _run(self) -> None:
        while (call := self._next()) is not None:
            call()

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._running -= 1
            self._ended.notify_all()
            return None


def _make(future: Future[T], call: Callable[[], T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)
