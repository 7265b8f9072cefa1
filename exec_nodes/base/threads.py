"""Threads that make calls and stay, and calls that wait for them.

An exception of a signal handler, such as Ctrl-C's, comes between any two lines of Python in the
main thread. It can leave Python's Executor, Future, Event and Condition locked for ever. So waiting
happens in C here, in a queue, and results are stored whether anybody has waited or not.

Until Python 3.14 a thread that comes out of native code while the interpreter is torn down ends the
process by SIGABRT. So calls are counted, and the exit waits for them, for a bounded time.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from _thread import start_new_thread
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from queue import Empty, SimpleQueue
from threading import Lock, current_thread, get_ident, main_thread
from time import monotonic, sleep
from typing import Generic, TypeVar

from exec_nodes.base.thresholds import Thresholds
from memwal_native import shut_down

T = TypeVar("T")
R = TypeVar("R")
_CHECK_SECONDS = 0.005
# A signal that comes right before a wait begins is handled when the wait ends.
_LONGEST_WAIT_SECONDS = 0.5
_SHARED = "requests"
_log = logging.getLogger("memwal_sql.exit")


class AtExit(Thresholds):
    """Attributes:
    patience_s: the most seconds that the exit of the process waits for calls under way.
    """

    patience_s: float = 60.0


# The exit codes of a process whose exit does not wait any longer, or has lost rows.
LEFT_CODE = 75
_INTERRUPTED_CODE = 130


@dataclass(frozen=True, slots=True)
class Outcome(Generic[R]):
    """The result of a call, or its error."""

    result: R | None = None
    error: BaseException | None = None

    def get(self) -> R:
        """Returns the result, or raises the error."""
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]


class Threads:
    """As many threads as there were calls running at once."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[object, str, Callable[[], None]]] = SimpleQueue()
        self._lock = Lock()
        self._idle = 0
        self._under_way: dict[object, str] = {}
        self.over = False
        self.lost = ""

    def start(self, call: Callable[[], None], what: str = _SHARED) -> None:
        """Make a call, which raises nothing, on one of the threads. `what` such calls are, in the
        plural, is for the message of an exit that can't wait for them."""
        key = object()
        try:
            self._under_way[key] = what
            with self._lock:
                if self._idle:
                    self._idle -= 1
                    self._calls.put((key, what, call))
                    return
            # Not by `Thread.start`, which waits by an Event until the thread runs.
            start_new_thread(self._run, (key, what, call))
        except BaseException:
            self._under_way.pop(key, None)
            raise

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Count what the caller's own thread does as a call."""
        key = object()
        self._under_way[key] = what
        try:
            yield
        finally:
            del self._under_way[key]

    def wait(self, seconds: float) -> dict[str, int]:
        """Return when no call is under way, or after so many seconds: how many are, of what."""
        end = monotonic() + seconds
        while self._under_way and monotonic() < end:
            sleep(_CHECK_SECONDS)
        return Counter(tuple(self._under_way.values()))

    def _run(self, key: object, what: str, call: Callable[[], None]) -> None:
        current_thread().name = f"memwal-{os.getpid()}-{get_ident()}"
        while True:
            self._under_way[key] = what  # an interrupted `start` may have taken it back
            call()
            del call
            with self._lock:
                self._under_way.pop(key, None)
                self._idle += 1
            key, what, call = self._calls.get()


class StateCondition:
    """Waits for a change of a state that a lock guards; an interrupt leaves the lock free. A
    Condition would raise a RuntimeError, as it releases its lock within a `with`."""

    def __init__(self, lock: AbstractContextManager[bool]) -> None:
        self._lock = lock
        self._waiting: list[SimpleQueue[None]] = []

    def tell(self) -> None:
        """Wake all waiting threads; the caller holds the lock."""
        while self._waiting:
            self._waiting[-1].put(None)
            self._waiting.pop()

    def wait_for(self, is_so: Callable[[], bool], seconds: float = inf) -> None:
        """Return when a condition, evaluated under the lock, is true, or when the time is over. The
        caller must not hold the lock."""
        end = monotonic() + seconds
        while True:
            with self._lock:
                if is_so() or (remaining := end - monotonic()) <= 0:
                    return
                wakeup = SimpleQueue[None]()
                self._waiting.append(wakeup)
            with suppress(Empty):
                wakeup.get(timeout=min(remaining, _LONGEST_WAIT_SECONDS))


class BoundedLock:
    """A lock that a thread waits for a bounded time. An interrupt leaves it free where it is taken
    in the `try` whose `finally` releases it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._released = StateCondition(self._lock)
        self._holder: object = None

    def take(self, holder: object, seconds: float = inf) -> bool:
        """Whether a holder, which is compared by identity, has taken it within the time."""

        def is_taken() -> bool:
            if self._holder is None:
                self._holder = holder
            return self._holder is holder

        self._released.wait_for(is_taken, seconds)
        return self._holder is holder

    def release(self, holder: object) -> None:
        """Give it back, if this holder has taken it."""
        with self._lock:
            if self._holder is holder:
                self._holder = None
                self._released.tell()


@lru_cache(maxsize=1)
def threads_of(_pid: int) -> Threads:
    """The idle threads of a process: a fork takes no threads along."""
    return Threads()


def start_call(call: Callable[[], None], what: str = _SHARED) -> None:
    """Make a call, which raises nothing, on a thread of this process; see `Threads.start`."""
    threads_of(os.getpid()).start(call, what)


def under_way(what: str) -> AbstractContextManager[None]:
    """Within the context the exit of the process waits for the caller, who may be in a thread that
    it would not wait for otherwise."""
    return threads_of(os.getpid()).during(what)


def is_over() -> bool:
    """Whether the process exits, and waits for calls under way: others are not to begin."""
    return threads_of(os.getpid()).over


def lost_at_exit(what: str) -> None:
    """Note what the exit of the process could not write: the process ends with exit code 75."""
    threads_of(os.getpid()).lost = what


def outcomes(
    call: Callable[[T], R], items: Iterable[T], threads: int, *, all_end: bool
) -> list[Outcome[R]]:
    """The results of `call` for all items, in order, in the caller's context, on this many threads
    at once. `call` may use others.

    An interrupted caller starts no more calls; running ones are waited for if `all_end`.
    """
    items = list(items)
    if all_end and len(items) < 2:
        return [_outcome(call, item) for item in items]
    results: list[Outcome[R] | None] = [None] * len(items)
    waiting: SimpleQueue[tuple[int, T]] = SimpleQueue()
    ended: SimpleQueue[None] = SimpleQueue()

    def work() -> None:
        while True:
            try:
                place, item = waiting.get_nowait()
            except Empty:
                return
            results[place] = _outcome(call, item)
            ended.put(None)

    for pair in enumerate(items):
        waiting.put(pair)
    try:
        for _ in range(min(threads, len(items))):
            try:
                start_call(_in_context(work))
            except RuntimeError:  # the process ends, or can't start more threads
                work()
        for _ in items:
            _wait_for(ended)
    except BaseException:
        under_way = len(items)
        while not waiting.empty():
            try:
                waiting.get_nowait()
            except Empty:
                break
            under_way -= 1
        while all_end and sum(outcome is not None for outcome in results) < under_way:
            sleep(_CHECK_SECONDS)
        raise
    return results  # type: ignore[return-value]


def _wait_for(ended: SimpleQueue[None]) -> None:
    while True:
        with suppress(Empty):
            return ended.get(timeout=_LONGEST_WAIT_SECONDS)


def beyond_signals(call: Callable[[], R]) -> R:
    """Run `call` where no signal handler runs: in another thread if this is the main one. So the
    exception of a handler comes out here at once, unchanged."""
    if get_ident() != main_thread().ident:
        return call()
    return in_thread(call)


def in_thread(call: Callable[[], R]) -> R:
    """Run `call` in another thread. An interrupted caller does not wait for it."""
    [outcome] = outcomes(lambda made: made(), [call], 1, all_end=False)
    return outcome.get()


def first_error(results: Sequence[Outcome[R]]) -> list[R]:
    """The results of all calls; raises the first error."""
    return [outcome.get() for outcome in results]


def _in_context(work: Callable[[], None]) -> Callable[[], None]:
    context = copy_context()
    return lambda: context.run(work)


def _outcome(call: Callable[[T], R], item: T) -> Outcome[R]:
    try:
        return Outcome(call(item))
    except BaseException as error:
        return Outcome(error=error)


@atexit.register
def _end() -> None:
    """Wait for all calls under way, then keep native threads from calling Python. What takes too
    long would end the process by a signal some moments later, so then the process ends here."""
    threads, end = threads_of(os.getpid()), monotonic() + AtExit.patience_s
    threads.over = True
    code, left = LEFT_CODE, dict[str, int]()
    try:
        left = threads.wait(AtExit.patience_s)
        if not shut_down(max(0.0, end - monotonic())):
            left = {**left, "queries": 1}
    except KeyboardInterrupt:
        code, left = _INTERRUPTED_CODE, threads.wait(0.0) or {"queries": 1}
    if left:
        calls = ", ".join(f"{what} ({count})" for what, count in sorted(left.items()))
        _leave(code, f"calls have not ended in {AtExit.patience_s:g} s: {calls}")
    if threads.lost:
        _leave(code, threads.lost)


def _leave(code: int, why: str) -> None:
    with suppress(BaseException):
        _log.error(
            "this process ends with exit code %d, as %s. Rows that were acknowledged as durable "
            "are in the log, and the next writer goes on with them",
            code,
            why,
        )
        sys.stdout.flush()
        sys.stderr.flush()
        logging.shutdown()
    os._exit(code)
