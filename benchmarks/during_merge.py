"""Reads while another process flushes and merges without a pause."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import lance
import numpy as np

import memwal_sql as mw
from benchmarks.merging import WIDTH, vector_rows
from benchmarks.result import Reach, Result
from benchmarks.timing import seconds
from benchmarks.workspace import Workspace

_PART = 4  # of the rows of the merge benchmark: an index over them is trained here
_PARTITIONS = 64
_PERCENTILE = 99
_LIMIT = 2.0


def during_merge(work: Workspace) -> Iterator[Result]:
    """The 99th percentile of each read beside a busy process, against that of a quiet table."""
    folder = work.folder / "during-merge"
    base, rows = work.sizes.base_rows // _PART, work.sizes.merge_rows // _PART
    lance.write_dataset(vector_rows(np.arange(base), 0), folder / "table")
    table = mw.enable(folder / "table", primary_key="id")
    table.create_index("vec", "IVF_FLAT", num_partitions=_PARTITIONS)
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
    with _busy(str(folder / "table"), base, rows):
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


@contextmanager
def _busy(uri: str, base: int, rows: int) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.busy_child", uri, str(base), str(rows)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        if child.stdin is None or child.stdout is None:
            raise OSError("the child has no pipes")
        child.stdout.readline()
        yield
        child.stdin.close()
        merges = child.stdout.read().split()
    if child.returncode or not merges or merges == ["0"]:
        raise subprocess.CalledProcessError(child.returncode, command)


def _measure(works: Mapping[str, Callable[[], object]], busy: float) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    end = time.monotonic() + busy
    while time.monotonic() < end or not all(times.values()):
        for name, work in works.items():
            times[name].append(seconds(work))
    return times
