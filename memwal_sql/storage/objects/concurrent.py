"""Requests that do not need each other's answers: on a remote store many are under way at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Generic, TypeVar

from exec_nodes.base.tasks import map_in_threads
from exec_nodes.base.threads import Outcome
from exec_nodes.base.thresholds import Thresholds
from memwal_sql.errors import DeadlineExceededError, MemWalError


class ReadWindow(Thresholds):
    """Requests side by side that took no longer are trusted together: a collector on an object
    store waits so long between reading what it goes by and deleting anything that readers ask for.
    All processes must have the same."""

    seconds = 10.0


_MOST = 32
# Questions take little memory and few bytes: three for each of as many regions.
_MOST_QUESTIONS = 96
# Clocks that go on while the machine sleeps.
_CLOCKS = (getattr(time, name, None) for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC_RAW"))
_CLOCK = next((clock for clock in _CLOCKS if clock is not None), None)
T = TypeVar("T")
R = TypeVar("R")


def map_remote(remote: bool, call: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The results of `call` for all items, in their order: one after the other, or each on a thread
    of its own where the store is remote. Raises the first error, once none is under way any more.

    `call` may use it itself, as its threads are nobody else's.
    """
    return map_in_threads(call, items, _MOST) if remote else [call(item) for item in items]


def ask_remote(remote: bool, questions: Sequence[Callable[[], R]]) -> list[R]:
    """The answers, in the order of the questions; each of these is put as `map_remote` calls."""
    return (
        map_in_threads(_put, questions, _MOST_QUESTIONS)
        if remote
        else [question() for question in questions]
    )


def run_with(remote: bool, call: Callable[[], R], other: Callable[[], object]) -> R:
    """What `call` returns, with `other` called meanwhile, or afterwards where the store is not
    remote. Raises the first error of both."""
    results: list[R] = []
    ask_remote(remote, (lambda: results.append(call()), other))
    return results[0]


def seconds() -> float:
    """Since some moment, with those in which the machine slept where the system counts them."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


class _UnderWay(Generic[R]):
    """A call whose thread holds the lock. It has no outcome for others if it was interrupted."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.outcome: Outcome[R] | None = None

    @property
    def is_over(self) -> bool:
        return self.outcome is not None or not self.lock.locked()


class SharedCall(Generic[R]):
    """A call without arguments: threads that make it while it is under way share what it returns,
    or the MemWalError that it raises. It may have begun before they asked, so it is for what need
    not be newer.

    An interrupt, and a deadline, end the call of one thread alone: one of the others begins again.
    """

    def __init__(self, call: Callable[[], R]) -> None:
        self._call = call
        self._under_way: _UnderWay[R] | None = None
        self._lock = Lock()

    def __call__(self) -> R:
        """What the call returns that is under way, or else one of its own."""
        while True:
            own: _UnderWay[R] = _UnderWay()
            # An interrupt between the lines of a Future would leave its lock taken.
            with own.lock:
                with self._lock:
                    shared = self._under_way
                    if shared is None or shared.is_over:
                        shared = self._under_way = own
                if shared is own:
                    return self._outcome(own)
            with shared.lock:
                pass  # it is over
            if shared.outcome is not None:
                return shared.outcome.get()

    def _outcome(self, own: _UnderWay[R]) -> R:
        try:
            own.outcome = Outcome(self._call())
        except DeadlineExceededError:
            raise
        except MemWalError as error:
            own.outcome = Outcome(error=error)
            raise
        return own.outcome.get()


def _put(question: Callable[[], R]) -> R:
    return question()
