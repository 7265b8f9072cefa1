"""Several requests under way at once, on threads that stay: starting one takes up to a millisecond
on a busy machine."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from typing import TypeVar

_THREADS = 16
_BACKGROUND_THREADS = 2
# Seconds of rest for one of work, and at most.
_BREATHING = 10
_LONGEST_BREATH = 0.005
_here = threading.local()
T = TypeVar("T")
R = TypeVar("R")


def at_once(call: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The results of `call` for all items, in their order; raises the first error.

    All callers of a process share the threads, so `call` must not use `at_once` itself.
    """
    items = list(items)
    if len(items) < 2:
        return [call(item) for item in items]
    pool = _pool(os.getpid())
    try:
        under_way = [pool.submit(call, item) for item in items]
    except RuntimeError:  # this thread goes on after the main one has ended
        return [call(item) for item in items]
    return [one.result() for one in under_way]


def in_background(call: Callable[[], object]) -> bool:
    """Call `call` some time soon, on a thread of its own kind, or at once on such a thread. What it
    raises is lost: it is for what only makes later work faster. False if the process is about to
    end, and nothing of the kind is done any more."""
    if is_background():
        with suppress(Exception):
            call()
        return True
    try:
        _background(os.getpid()).submit(call)
    except RuntimeError:
        return False
    return True


def is_background() -> bool:
    """Whether nobody waits for what this thread does."""
    return getattr(_here, "is_background", False)


def breathe() -> None:
    """Give way to queries, in the background: they wait for the interpreter as long as it is busy,
    and so a query of three milliseconds can take ten beside ten of other work."""
    if is_background():
        worked = time.monotonic() - _here.breathed
        time.sleep(min(_LONGEST_BREATH, _BREATHING * worked))
        _here.breathed = time.monotonic()


@lru_cache(maxsize=1)
def _pool(pid: int) -> ThreadPoolExecutor:
    # By process: a fork takes no threads along.
    return ThreadPoolExecutor(_THREADS, f"memwal-{pid}")


@lru_cache(maxsize=1)
def _background(pid: int) -> ThreadPoolExecutor:
    # Few, as readers are waiting for the same processors; and others, as it may use `at_once`.
    name = f"memwal-background-{pid}"
    return ThreadPoolExecutor(_BACKGROUND_THREADS, name, initializer=_begin_background)


def _begin_background() -> None:
    _here.is_background = True
    _here.breathed = 0.0
