"""The meaning of Lance's errors, which only their text tells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from exec_nodes.base.errors import (
    CorruptFileError,
    MemWalError,
    SourceGoneError,
    StoreUnavailableError,
    UnsupportedError,
)
from exec_nodes.base.interrupts import raise_interrupt

BASE_NAME = "base_table[gen=-1]"
_FROM_A_COPY = "restore the folder from a copy; without one, its rows are lost"
# Most errors of Lance end with the place in its source where they were found.
_OF_LANCE = re.compile(r"\.rs:\d+|^External error: |^Schema error: ")
_CORRUPT = "Encountered corrupt file"
_TOO_MUCH_TEXT = "Offset overflow"  # of a batch
_OF_THE_CALL = "/scanner.rs:"  # where scans are planned, before anything is read
_OF_THE_STORE = re.compile(
    r"Generic [\w/]+ error|\(os error \d+\)|lacked|Failed to get \w+ credentials", re.IGNORECASE
)
# The store answers, but the file is shorter than Lance was told.
_TOO_SHORT = ("failed to fill whole buffer", "Invalid range", "Range Not Satisfiable")


def is_not_found(error: Exception) -> bool:
    """Whether Lance means that something is not there."""
    return "not found" in str(error).lower()


def is_panic(error: BaseException) -> bool:
    """Whether Rust code has given up, as Lance does on some damaged files; no `Exception`."""
    return type(error).__name__ == "PanicException"


def is_damage(error: Exception) -> bool:
    """Whether Lance has read a file that is not whole, or not valid."""
    text = str(error)
    if is_not_found(error) or not _OF_LANCE.search(text) or _OF_THE_CALL in text:
        return False
    if _TOO_MUCH_TEXT in text:
        return False
    return is_cut(error) or not _OF_THE_STORE.search(text)


def is_cut(error: Exception) -> bool:
    """Whether Lance found that a file is shorter than it was told."""
    return any(text in str(error) for text in _TOO_SHORT)


@contextmanager
def bytes_of_lance() -> Iterator[None]:
    """Turn whatever Lance makes of a file that is in memory, or nobody else's, into ValueError: no
    store can have failed."""
    try:
        yield
    except BaseException as error:
        raise_interrupt(error)
        if is_panic(error) or isinstance(error, OSError | RuntimeError):
            raise ValueError(str(error)) from error
        raise


@contextmanager
def lance_errors(name: str, uri: str) -> Iterator[None]:
    """Turn Lance's errors about stored data into those of this package; `name` and `uri` are
    the source's.

    SourceGoneError says to take a new snapshot, StoreUnavailableError to try again later, and
    CorruptFileError what to restore. Other errors pass unchanged, and an exception of a signal
    handler is never one of these.
    """
    try:
        yield
    except MemWalError:
        raise
    except (OSError, ValueError) as error:
        raise_interrupt(error)
        if is_not_found(error):
            raise SourceGoneError(f"files of {name} are gone; {_again(name)}: {error}") from error
        if _TOO_MUCH_TEXT in str(error):
            raise UnsupportedError(
                f"{name} in {uri} has more text in some rows than an array of Arrow holds, "
                f"2 GiB: read fewer of them at a time, by their keys or a range of these: {error}"
            ) from error
        if is_damage(error):
            raise damaged(name, uri, error) from error
        if _OF_LANCE.search(str(error)) and _OF_THE_STORE.search(str(error)):
            raise StoreUnavailableError(f"{uri} could not be read; try again: {error}") from error
        raise
    except BaseException as error:
        raise_interrupt(error)
        if is_panic(error) or (isinstance(error, RuntimeError) and _CORRUPT in str(error)):
            raise damaged(name, uri, error) from error
        raise


@contextmanager
def lance_panics(name: str, uri: str) -> Iterator[None]:
    """Turn a panic of Lance, which is not an `Exception`, into CorruptFileError: for callers that
    handle Lance's errors themselves."""
    try:
        yield
    except BaseException as error:
        raise_interrupt(error)
        if is_panic(error):
            raise damaged(name, uri, error) from error
        raise


def damaged(name: str, uri: str, why: object) -> CorruptFileError:
    """The error for a table of Lance that is not whole."""
    remedy = (
        "go back to a version that is whole, or restore the file from a copy"
        if name == BASE_NAME
        else _FROM_A_COPY
    )
    return CorruptFileError(f"{name} in {uri} is damaged, see table.check(); {remedy}: {why}")


def _again(name: str) -> str:
    if name == BASE_NAME:
        return (
            "if Lance has cleaned up the version, a new query works, one of that version never will"
        )
    return "if it was merged and collected meanwhile, the query works when it is run again"
