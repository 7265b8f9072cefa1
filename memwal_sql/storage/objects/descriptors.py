"""Open files and folders by their descriptors, each closed once whatever interrupts.

An exception of a signal handler, as Ctrl-C raises one, comes between any two lines of Python. A
number that was closed a moment ago and is closed again is another thread's file by then; one that
was opened and never stored is open until the process ends. Calls within C are not interrupted: so
a number goes from the system call into the list, and from the list into the system call, in one.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

Path = str | os.PathLike[str]


class Descriptors:
    """Descriptors that are open as long as the block of `descriptors`."""

    def __init__(self, numbers: list[Any]) -> None:
        self._numbers = numbers

    def open(self, path: Path, flags: int, mode: int = 0o777, dir_fd: int | None = None) -> int:
        """As `os.open`, whose errors it raises."""
        call = partial(os.open, mode=mode, dir_fd=dir_fd)
        self._numbers.extend(map(call, (path,), (flags | os.O_CLOEXEC,)))
        number: int = self._numbers[-1]
        return number


@contextmanager
def descriptors() -> Iterator[Descriptors]:
    """Owns the descriptors that are opened within the block, and closes them at its end."""
    numbers: list[Any] = [None]
    closing = map(os.close, iter(numbers.pop, None))
    try:
        yield Descriptors(numbers)
    finally:
        deque(closing, 0)


@contextmanager
def opened(path: Path, flags: int, mode: int = 0o777, dir_fd: int | None = None) -> Iterator[int]:
    """One descriptor, open within the block. Raises what `os.open` raises."""
    with descriptors() as files:
        yield files.open(path, flags, mode, dir_fd)
