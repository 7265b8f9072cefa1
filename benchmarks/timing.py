"""Timing work against its baselines on a machine that others use too."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping

Work = Callable[[], object]


def interleaved(works: Mapping[str, Work], rounds: int, warm_up: int = 2) -> dict[str, float]:
    """The median seconds of each work over `rounds` rounds, each of which runs every work once.

    A noisy neighbour so slows all of them alike, and the ratio stands. Every second round runs
    in reverse order. The cyclic garbage collector runs between the rounds only.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        for _ in range(warm_up):
            work()
    order = list(works.items())
    enabled = gc.isenabled()
    gc.disable()
    try:
        for number in range(rounds):
            gc.collect()
            for name, work in order if number % 2 == 0 else reversed(order):
                times[name].append(seconds(work))
    finally:
        if enabled:
            gc.enable()
    return {name: statistics.median(measured) for name, measured in times.items()}


def seconds(work: Work) -> float:
    """The seconds one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
