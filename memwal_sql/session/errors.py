"""Finds the original errors behind those of DataFusion, which keeps only their text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import memwal_native
from exec_nodes.base.interrupts import raise_interrupt
from memwal_sql.errors import MemWalError


def original_error(error: BaseException) -> MemWalError | None:
    """The MemWalError behind an exception that DataFusion raised; None if there is none. If a
    signal handler's exception, such as Ctrl-C's, is behind it, that is raised.

    The newest 32 errors of the process are remembered, by their text.
    """
    if isinstance(error, MemWalError):
        return error
    raised = memwal_native.recall(str(error))
    if raised is None or isinstance(raised, MemWalError):
        raise_interrupt(error)
        return raised
    shown = (f"External error: {type(raised).__qualname__}", f"value: {raised!r}")
    if any(text in str(error) for text in shown):
        raise raised from error
    return None


@contextmanager
def memwal_errors() -> Iterator[None]:
    """A context in which queries raise MemWalError where a MemWAL table failed.

    DataFusion alone raises `Exception: DataFusion error: ...` whatever went wrong, even for an
    exception of a signal handler, which is raised unchanged here:

        with memwal_errors():
            ctx.sql("SELECT * FROM events").collect()
    """
    try:
        yield
    except Exception as error:
        original = original_error(error)
        if original is None or original is error:
            raise
        raise original from error
