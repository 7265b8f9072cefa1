"""Reads while another process flushes and merges without a pause."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from benchmarks.child import beside
from benchmarks.indexed import indexed_table
from benchmarks.merging import WIDTH
from benchmarks.result import Reach, Result
from benchmarks.timing import seconds
from benchmarks.workspace import Workspace

_PERCENTILE = 99
_LIMIT = 2.0


def during_merge(work: Workspace) -> Iterator[Result]:
    """The 99th percentile of each read beside a busy process, against that of a quiet table."""
    uri = work.folder / "during-merge" / "table"
    table, base, rows = indexed_table(uri, work.sizes)
    random = np.random.default_rng(5)

    def search() -> object:
        query = random.random(WIDTH, dtype=np.float32)
        return table.vector_search("vec", query, 10, columns=["id"])

    works: Mapping[str, Callable[[], object]] = {
        "table.get": lambda: table.get([int(random.integers(base))]),
        "scan": lambda: table.scan(columns=["id"]).read_all(),
        "vector search": search,
    }
    before = _measure(works, work.sizes.busy_seconds)
    with beside("benchmarks.busy_child", str(uri), str(base), str(rows)):
        busy = _measure(works, work.sizes.busy_seconds)
    table.build_indexes()
    after = _measure(works, work.sizes.busy_seconds)
    for name in works:
        quiet = np.percentile(before[name] + after[name], _PERCENTILE)
        found = np.percentile(busy[name], _PERCENTILE)
        yield Result(
            f"{name} while a merge runs, p{_PERCENTILE}",
            float(found) * 1e3,
            "ms",
            float(quiet) * 1e3,
            "quiet",
            Reach(float(found / quiet), _LIMIT, "at most"),
        )


def _measure(works: Mapping[str, Callable[[], object]], busy: float) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    end = time.monotonic() + busy
    while time.monotonic() < end or not all(times.values()):
        for name, work in works.items():
            times[name].append(seconds(work))
    return times
