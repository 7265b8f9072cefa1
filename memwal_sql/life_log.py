"""The loggers of this package: what is logged under a lock is told when the lock is free.

A handler is code of somebody else, and may write what it is told into a table of ours. So none is
called by a thread that others wait for, and within what would make its own call wait for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_deferred: ContextVar[list[logging.LogRecord] | None] = ContextVar("memwal_sql_logs", default=None)


def life_log(name: str) -> logging.Logger:
    """The logger of a module; every module has its own from here."""
    logger = logging.getLogger(name)
    logger.addFilter(_passes)
    return logger


@contextmanager
def deferred_logs() -> Iterator[None]:
    """Within the context nothing is told; at its end all of it is, by this thread.

    Calls made for this thread by others, in its context, count as its own.
    """
    if _deferred.get() is not None:
        yield  # there is one around it
        return
    records: list[logging.LogRecord] = []
    token = _deferred.set(records)
    try:
        yield
    finally:
        _deferred.reset(token)
        for record in records:
            logging.getLogger(record.name).handle(record)


def _passes(record: logging.LogRecord) -> bool:
    records = _deferred.get()
    if records is None:
        return True
    records.append(record)
    return False
