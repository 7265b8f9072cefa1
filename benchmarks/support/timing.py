"""Timing work against its baselines on a machine that others use too."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Work = Callable[[], object]


def interleaved(works: Mapping[str, Work], rounds: int, warm_up: int = 2) -> dict[str, float]:
    """Seconds of each work: the lower quartile of `rounds` rounds, each running every work once.

    Rounds that a neighbour of the machine slows so count little, and those that stay slow all
    works alike. Every second round runs in reverse order. The cyclic garbage collector runs
    between the rounds only, and looks at what they made: a walk over every object of the process
    would leave nothing of the works in the processor's caches.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        for _ in range(warm_up):
            work()
    order = list(works.items())
    enabled = gc.isenabled()
    gc.disable()
    gc.collect()
    gc.freeze()
    try:
        for number in range(rounds):
            gc.collect()
            for name, work in order if number % 2 == 0 else reversed(order):
                times[name].append(seconds(work))
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()
    return {name: lower_quartile(measured) for name, measured in times.items()}


def lower_quartile(measured: Sequence[float]) -> float:
    """The figure that a quarter of the measured ones stay below."""
    return sorted(measured)[(len(measured) - 1) // 4]


def seconds(work: Work) -> float:
    """The seconds one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def write_and_sync(path: Path, data: bytes) -> None:
    """Write a new file and sync it and its folder."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.write(file, data)
        os.fsync(file)
    finally:
        os.close(file)
    sync(path.parent)


def sync(path: Path) -> None:
    """Sync a file or a folder that somebody else wrote."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def forget(folder: Path) -> None:
    """Drop every file under `folder` from the page cache, so that the next read is cold."""
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)
