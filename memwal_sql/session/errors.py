"""Gets the original errors back out of DataFusion, which keeps only their text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import memwal_native
from memwal_sql.errors import MemWalError


def original_error(error: BaseException) -> MemWalError | None:
    """The MemWalError behind an exception that DataFusion raised; None if there is none.

    The newest 32 errors of the process are remembered, by their text.
    """
    if isinstance(error, MemWalError):
        return error
    found = memwal_native.recall(str(error))
    return found if isinstance(found, MemWalError) else None


@contextmanager
def memwal_errors() -> Iterator[None]:
    """Within it, queries raise MemWalError where a memwal table failed.

    DataFusion alone raises `Exception: DataFusion error: ...` whatever went wrong:

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
