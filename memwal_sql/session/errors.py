"""Gets the original errors back out of DataFusion, which keeps only their text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import memwal_native
from exec_nodes.base.interrupts import raise_interrupt
from memwal_sql.errors import MemWalError


def original_error(error: BaseException) -> MemWalError | None:
    """The MemWalError behind an exception that DataFusion raised; None if there is none. Raises
    what a signal handler raised, as Ctrl-C does, where that is behind it.

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
    """Within it, queries raise MemWalError where a memwal table failed.

    DataFusion alone raises `Exception: DataFusion error: ...` whatever went wrong, also for what a
    signal handler has raised, which comes out as it is:

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
