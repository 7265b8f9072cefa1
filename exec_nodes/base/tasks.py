"""Several requests under way at once, on threads that stay: starting one takes up to a millisecond
on a busy machine. What is waited for is done in the caller's context."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from threading import RLock, main_thread
from typing import TypeVar

from exec_nodes.base.threads import first_error, outcomes, start_call

_THREADS = 16
_BACKGROUND_THREADS = 2
T = TypeVar("T")
R = TypeVar("R")


def map_concurrently(call: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The results of `call`, which only reads, for all items, in their order; raises the first
    error. Whoever is interrupted does not wait for the calls that are under way."""
    items = list(items)
    if len(items) < 2:
        return [call(item) for item in items]
    return first_error(outcomes(call, items, _THREADS, all_end=False))


def map_in_threads(call: Callable[[T], R], items: Iterable[T], threads: int) -> list[R]:
    """The results of `call` for all items, in order, on this many threads. Raises the first error,
    once no call is running any more."""
    items = list(items)
    if len(items) < 2:
        return [call(item) for item in items]
    return first_error(outcomes(call, items, threads, all_end=True))


def in_background(call: Callable[[], object], *, is_long: bool = False) -> bool:
    """Call `call` soon, on another thread. Its errors are lost: use it for work that only makes
    later work faster. Returns False if the process is about to end and takes no such work any more.

    Calls that take long are made one by one, apart from the others. At the end of the process those
    that wait are left out, and a long one that is under way should look at `is_ending`.
    """
    try:
        if _starts:
            _starts[-1](call)
        elif is_ending():
            return False
        else:
            _lanes(os.getpid())[is_long].add(call)
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


class _Lane:
    """Calls of which at most this many run at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[Callable[[], object]] = deque()
        self._running = 0
        self._lock = RLock()

    def add(self, call: Callable[[], object]) -> None:
        with self._lock:
            self._waiting.append(call)
            if self._running < self._most:
                start_call(self._run)
                self._running += 1

    def _run(self) -> None:
        while (call := self._next()) is not None:
            with suppress(Exception):
                call()

    def _next(self) -> Callable[[], object] | None:
        with self._lock:
            if self._waiting and not is_ending():
                return self._waiting.popleft()
            self._running -= 1
            return None


@lru_cache(maxsize=1)
def _lanes(_pid: int) -> tuple[_Lane, _Lane]:
    # Few, as readers wait for the same processors. By process: a fork takes no threads along.
    return _Lane(_BACKGROUND_THREADS), _Lane(1)


# Ways to start a background call; the last one is used.
_starts: list[Callable[[Callable[[], object]], object]] = []
