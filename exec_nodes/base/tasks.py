"""Several requests under way at once, on threads that stay: starting one takes up to a millisecond
on a busy machine. What is waited for is done in the caller's context."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import lru_cache
from threading import RLock, Thread, main_thread
from typing import TypeVar

from exec_nodes.base.errors import RetryError

_THREADS = 16
_NO_THREAD = "can't start new thread"
_ENDING = "interpreter shutdown"
_BACKGROUND_THREADS = 2
T = TypeVar("T")
R = TypeVar("R")


def map_concurrently(call: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The results of `call` for all items, in their order; raises the first error.

    All callers of a process share the threads, so `call` must not use `map_concurrently` itself.
    """
    items = list(items)
    if len(items) < 2:
        return [call(item) for item in items]
    pool = _pool(os.getpid())
    try:
        under_way = [pool.submit(copy_context().run, call, item) for item in items]
    except RuntimeError:  # this thread goes on after the main one has ended
        return [call(item) for item in items]
    return [one.result() for one in under_way]


def map_in_threads(call: Callable[[T], R], items: Iterable[T], threads: int) -> list[R]:
    """The results of `call` for all items, in their order, on threads of this call's own: `call`
    may use others. Raises the first error, once none is under way any more; RetryError where the
    system has no room for a thread."""
    items = list(items)
    if len(items) < 2:
        return [call(item) for item in items]
    try:
        with ThreadPoolExecutor(min(threads, len(items)), "memwal-own") as pool:
            under_way = [pool.submit(copy_context().run, call, item) for item in items]
    except RuntimeError as error:
        if _ENDING in str(error):  # a function of `atexit` calls
            return [call(item) for item in items]
        if _NO_THREAD not in str(error):
            raise
        raise RetryError(
            "the system gives this process no more threads: raise its limits of memory and "
            "processes, and call again"
        ) from error
    return [one.result() for one in under_way]


def in_background(call: Callable[[], object], *, is_long: bool = False) -> bool:
    """Call `call` some time soon, on a thread of its own kind. What it raises is lost: it is for
    what only makes later work faster. False if the process is about to end, and nothing of the
    kind is done any more.

    Calls that take long are made one by one, apart from the others. At the end of the process those
    that wait are left out, and the one that is under way should look at `is_ending`.
    """
    try:
        if _starts:
            _starts[-1](call)
        elif is_long:
            _long_calls(os.getpid()).add(call)
        else:
            _background(os.getpid()).submit(call)
    except RuntimeError:
        return False
    return True


def is_ending() -> bool:
    """Whether this process waits for nothing but its threads."""
    return not main_thread().is_alive()


@contextmanager
def background_by(start: Callable[[Callable[[], object]], object]) -> Iterator[None]:
    """Within the context `start` gets the calls of all threads for the background: it makes them at
    once, later or never. A RuntimeError of its says that the process is about to end."""
    _starts.append(start)
    try:
        yield
    finally:
        _starts.remove(start)


@lru_cache(maxsize=1)
def _pool(pid: int) -> ThreadPoolExecutor:
    # By process: a fork takes no threads along.
    return ThreadPoolExecutor(_THREADS, f"memwal-{pid}")


@lru_cache(maxsize=1)
def _background(pid: int) -> ThreadPoolExecutor:
    # Few, as readers wait for the same processors; not those above, which its calls may use.
    return ThreadPoolExecutor(_BACKGROUND_THREADS, f"memwal-background-{pid}")


class _LongCalls:
    """A thread that goes when it has no calls. An executor would make them all before it ends."""

    def __init__(self, pid: int) -> None:
        self._name = f"memwal-long-{pid}"
        self._waiting: deque[Callable[[], object]] = deque()
        self._is_running = False
        self._lock = RLock()

    def add(self, call: Callable[[], object]) -> None:
        with self._lock:
            self._waiting.append(call)
            if not self._is_running:
                Thread(target=self._run, name=self._name).start()
                self._is_running = True

    def _run(self) -> None:
        while (call := self._next()) is not None:
            with suppress(Exception):
                call()

    def _next(self) -> Callable[[], object] | None:
        with self._lock:
            self._is_running = bool(self._waiting) and not is_ending()
            return self._waiting.popleft() if self._is_running else None


@lru_cache(maxsize=1)
def _long_calls(pid: int) -> _LongCalls:
    return _LongCalls(pid)


# The last one is asked.
_starts: list[Callable[[Callable[[], object]], object]] = []
