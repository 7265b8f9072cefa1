"""Running doomed processes: what they said, and how far they came."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from memwal_sql.errors import MemWalError
from tests.crash.doomed import SURVIVED, Death
from tests.soak import IS_SOAK

SEED = os.environ.get("MEMWAL_SEED", "1")


def run_to_death(context: Any, target: Callable[..., None], *args: Any) -> tuple[list[Any], bool]:
    """What a process said, and whether it survived. `target` is called with `args` and the link to
    speak through."""
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(*args, theirs))
    process.start()
    theirs.close()
    said: list[Any] = []
    with suppress(EOFError):
        while True:
            said.append(ours.recv())
    process.join()
    survived = said[-1:] == [SURVIVED]
    expected = (-signal.SIGKILL, 0) if survived else (-signal.SIGKILL,)
    assert process.exitcode in expected, f"the process failed by itself: {process.exitcode}"
    return said[: len(said) - survived], survived


def moments(*stores: str) -> list[tuple[str, str]]:
    """Where and when to kill at calls of these stores and of Lance. What is there before a call is
    there after the one before it: a soak looks at both."""
    both = ("before", "after") if IS_SOAK else ("after",)
    return [(store, when) for store in (*stores, "lance") for when in both]


def deaths_at_calls(kill: Callable[[Death], bool], where: str, when: str, stride: int) -> int:
    """Kill at a call, at the `stride`-th one after it, and so on until a process survives because
    it makes fewer calls; the number of that call. `kill` returns whether the process survived.

    MEMWAL_SOAK kills at every call, and MEMWAL_SEED changes the first one.
    """
    stride = 1 if IS_SOAK else stride
    nth = 1 + crc32(f"{SEED}/{where}/{when}".encode()) % stride
    while not kill(Death(where, nth, when)):
        nth += stride
    return nth


@contextmanager
def copy_of(template: Path, folder: Path) -> Iterator[str]:
    """The place of a copy of a table, which goes afterwards."""
    uri = str(folder / "table")
    shutil.copytree(template, uri)
    try:
        yield uri
    finally:
        shutil.rmtree(uri, ignore_errors=True)


@contextmanager
def told_by(cause: str) -> Iterator[None]:
    """Failures name how the process died."""
    try:
        yield
    except (AssertionError, MemWalError) as error:
        raise AssertionError(f"{cause}: {error!r}") from error
