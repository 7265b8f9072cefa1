"""Open files and streams that rows are written into, with errors that name them."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, cast

from memwal_sql.errors import InvalidCallError

_ELSEWHERE = "name a file in a folder that is there, that has room and that you may write to"


@contextmanager
def named_errors(name: str, remedy: str = _ELSEWHERE) -> Iterator[None]:
    """An OSError of the block is one of writing `name`; BrokenPipeError is the reader's end."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InvalidCallError(
            f"{name} can't be written: {error.strerror or error}; {remedy}"
        ) from None


def named_sink(below: BinaryIO, name: str, remedy: str = _ELSEWHERE) -> BinaryIO:
    """Writes into an open file, which it neither owns nor closes, and names it in errors: whoever
    computes the rows in between has errors of its own."""
    return cast(BinaryIO, _NamedSink(below, name, remedy))


class _NamedSink(io.RawIOBase):
    def __init__(self, below: BinaryIO, name: str, remedy: str) -> None:
        self._below = below
        self._error = (name, remedy)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._below.isatty()

    def write(self, data: Any, /) -> int:
        with named_errors(*self._error):
            return self._below.write(data)

    def flush(self) -> None:
        if self._below.closed:  # Python flushes what it forgets
            return
        with named_errors(*self._error):
            self._below.flush()


_STDOUT = ("standard output", "send it to a file or a pipe that takes it")


@contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Standard output, flushed when the block ends well."""
    with stdout_errors():
        sys.stdout.flush()
    sink = named_sink(sys.stdout.buffer, *_STDOUT)
    yield sink
    sink.flush()


@contextmanager
def stdout_errors() -> Iterator[None]:
    """For a block that does nothing but write to standard output."""
    with named_errors(*_STDOUT):
        yield


def drop_output() -> None:
    """Forget what standard output does not take: Python writes it once more at its end, and would
    replace the exit code."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
