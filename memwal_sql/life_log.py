"""The loggers of this package: records of a call are emitted when nobody waits for it.

A handler is foreign code, and may write its records into a MemWAL table: under a lock, or in a
thread that its own write waits for, it would wait for ever.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial

from exec_nodes.base.transient_threads import TransientThreads

_deferred: ContextVar[list[logging.LogRecord] | None] = ContextVar("memwal_sql_logs", default=None)


def life_log(name: str) -> logging.Logger:
    """The logger of a module; every module has its own from here."""
    logger = logging.getLogger(name)
    logger.addFilter(_passes)
    return logger


@contextmanager
def deferred_logs(*, by_thread: bool = False) -> Iterator[None]:
    """Within the context no handler is called; at its end all records come, by this thread, or,
    where others wait for its next call, by one of their own.

    Calls made for this thread by others, in its context, count as its own.
    """
    if _deferred.get() is not None:
        yield  # there is one around it
        return
    records: list[logging.LogRecord] = []
    try:
        _deferred.set(records)  # by value, as an interrupt may come before a token is stored
        yield
    finally:
        _deferred.set(None)
        for record in records:
            if by_thread:
                thread = _thread(os.getpid())
                thread.submit(partial(_handle, record))
                thread.make_queued()
            else:
                _handle(record)


@lru_cache(maxsize=1)
def _thread(_: int) -> TransientThreads:
    # By process: a fork takes no threads along.
    return TransientThreads(1, "records of the log")


def _handle(record: logging.LogRecord) -> None:
    logging.getLogger(record.name).handle(record)


def _passes(record: logging.LogRecord) -> bool:
    records = _deferred.get()
    if records is None:
        return True
    records.append(record)
    return False
