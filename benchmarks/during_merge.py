"""Reads while another process merges. A table in use by all at once is what `soak` measures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np

import memwal_sql as mw
from benchmarks.merging import WIDTH, indexed_table
from benchmarks.support.child import steps
from benchmarks.support.result import Reach, Result
from benchmarks.support.timing import Work, seconds
from benchmarks.support.workspace import Workspace

_PERCENTILE = 99
_LIMIT = 2.0
Times = list[float]


def during_merge(work: Workspace) -> Iterator[Result]:
    """The 99th percentile of each read by itself, again and again while four generations are merged
    and once more after it, so that the first read of what was merged is among them; quiet is the
    same table before."""
    uri = work.folder / "during-merge"
    table, base, _ = indexed_table(uri, work.sizes)
    arguments = str(uri), str(base), str(work.sizes.merge_rows)
    with steps("merge-steps", *arguments) as child:
        for name, read in _reads(table, base).items():
            quiet: Times = []
            busy: Times = []
            for _ in range(work.sizes.merges):
                child.do("index")
                child.do("flush")
                # Until what searches keep in memory has been read, and then as long as a merge.
                _timed(read, _over(work.sizes.busy_seconds))
                quiet += _timed(read, _over(work.sizes.busy_seconds / work.sizes.merges))
                busy += _timed(read, child.begin("merge").is_set)
            slow, calm = (float(np.percentile(times, _PERCENTILE)) for times in (busy, quiet))
            reach = Reach(slow / calm, _LIMIT, "at most")
            line = f"{name} while a merge runs, p{_PERCENTILE}"
            yield Result(line, slow * 1e3, "ms", calm * 1e3, "quiet", reach)


def _reads(table: mw.Table, base: int) -> Mapping[str, Work]:
    random = np.random.default_rng(5)

    def search() -> object:
        query = random.random(WIDTH, dtype=np.float32)
        return table.vector_search("vec", query, 10, columns=["id"])

    return {
        "table.get": lambda: table.get([int(random.integers(base))]),
        "scan": lambda: table.scan(columns=["id"]).read_all(),
        "vector search": search,
    }


def _timed(read: Work, ended: Callable[[], bool]) -> Times:
    """Seconds of one read after the other; the last began when it had `ended`."""
    times = []
    last = False
    while not last:
        last = ended()
        times.append(seconds(read))
    return times


def _over(duration: float) -> Callable[[], bool]:
    """Tells whether so many seconds have passed from now on."""
    end = time.monotonic() + duration
    return lambda: time.monotonic() >= end
