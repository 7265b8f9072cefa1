"""The time that a caller gives to the calls that it makes.

It is checked before a request to an object store, and never during one, so that the outcome of each
request is known. A call ends at a request as it does where the store refuses it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf

from memwal_sql.arguments import is_number
from memwal_sql.errors import DeadlineExceededError, InvalidCallError


@dataclass(frozen=True, slots=True)
class _Deadline:
    seconds: float
    end: float


_UNBOUNDED = _Deadline(inf, inf)
_current: ContextVar[_Deadline] = ContextVar("memwal_sql_deadline", default=_UNBOUNDED)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Give the calls within the context so much time, all of them together:

        with mw.deadline(30):
            table.merge()

    Once it is over they make no further request to an object store and raise
    DeadlineExceededError, a RetryError. A request that is under way, or a call of Lance, is
    waited for: how long these may take the storage options `timeout` and `client_retry_timeout`
    say. A call that was ended so may be made again. One of several commits may end between them:
    its error says which call goes on. An append to the log that has begun is seen through, so that
    it is known whether rows are durable.

    It counts for this thread, or asyncio task, and what it waits for; not for flushes in the
    background. Within another deadline the earlier one ends the call. Tables on a local disk are
    not bound by it.

    Raises InvalidCallError unless `seconds` is a number above 0.
    """
    if not is_number(seconds) or not seconds > 0:
        raise InvalidCallError(f"seconds={seconds!r} must be a number above 0")
    with _set(min(_current.get(), _Deadline(seconds, time.monotonic() + seconds), key=_end)):
        yield


@contextmanager
def unbounded() -> Iterator[None]:
    """No deadline applies within the context, for work that must not be left half done."""
    with _set(_UNBOUNDED):
        yield


def check_deadline(what: str, seconds: float = 0.0) -> None:
    """Raise DeadlineExceededError unless more than this time is left for `what`, the next step."""
    if remaining() <= seconds:
        raise DeadlineExceededError(
            f"{what}: the deadline of {_current.get().seconds:g} s leaves no time for it; try "
            "again, or give more time"
        )


def remaining() -> float:
    """Seconds until the deadline, at least 0; infinite without one."""
    end = _current.get().end
    return inf if end == inf else max(0.0, end - time.monotonic())


@contextmanager
def _set(current: _Deadline) -> Iterator[None]:
    token = _current.set(current)
    try:
        yield
    finally:
        _current.reset(token)


def _end(deadline: _Deadline) -> float:
    return deadline.end
