"""A table after many small merges beside the job loop, compared with itself after the first one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import datafusion
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.child import JOBS, run_child
from benchmarks.support.data import WrongResultError
from benchmarks.support.result import Result, at_most_ratio
from benchmarks.support.timing import lower_quartile, seconds
from benchmarks.support.workspace import Workspace

_LIMIT = 1.5
_ROUNDS = 40
_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("step", pa.int64()),
        pa.field("price", pa.float64()),
        pa.field("name", pa.string()),
    ]
)
_QUERY = "SELECT count(*) AS n, avg(price) AS mean FROM t"
Times = Mapping[str, float]


def many_merges(work: Workspace) -> Iterator[Result]:
    """Each merge replaces some rows here and there; `memwal run` looks after the rest."""
    sizes, uri = work.sizes, work.folder / "many-merges"
    table = mw.create_table(uri, _SCHEMA, "id")
    stream = _Stream(table, sizes.base_rows, sizes.small_merge_rows)
    first = stream.merge(3)
    before = _times(table, stream, first, sizes.cold_starts)
    with _jobs(uri):
        times = stream.merge(sizes.small_merges)
    after = _times(table, stream, times[-_ROUNDS:], sizes.cold_starts)
    stream.check()
    for name, found in after.items():
        line = f"{name}, after {sizes.small_merges:,} merges of {sizes.small_merge_rows:,} rows"
        yield at_most_ratio(line, found, before[name], "after the first ones", _LIMIT)


class _Stream:
    """Writes into a table, and knows what is in it."""

    def __init__(self, table: mw.Table, base: int, rows: int) -> None:
        self._table = table
        self._rows = rows
        self._random = np.random.default_rng(7)
        self._steps = np.zeros(base, np.int64)
        with table.writer(durable=False, memtable_rows=base + 1) as writer:
            writer.upsert(_rows(np.arange(base), 0))
            writer.flush()
        table.merge()

    def merge(self, times: int) -> list[float]:
        """Write and merge so many times; the seconds of each merge."""
        found = []
        with self._table.writer(durable=False) as writer:
            for _ in range(times):
                step = int(self._steps.max()) + 1
                keys = self._random.choice(len(self._steps), self._rows, replace=False)
                self._steps[keys] = step
                writer.upsert(_rows(keys, step))
                writer.flush()
                found.append(seconds(self._table.merge))
        return found

    def key(self) -> int:
        """That of some row."""
        return int(self._random.integers(len(self._steps)))

    def check(self) -> None:
        """Raise WrongResultError unless the table has what was written."""
        found = self._table.scan(columns=["id", "step"]).read_all().sort_by("id")
        if found["step"].to_numpy().tolist() != self._steps.tolist():
            raise WrongResultError("many merges: rows are not those that were written last")


def _rows(keys: np.ndarray, step: int) -> pa.Table:
    columns = [keys, np.full(len(keys), step), keys * 0.5, [f"name {key}" for key in keys]]
    return pa.table(list(map(pa.array, columns)), schema=_SCHEMA)


def _times(table: mw.Table, stream: _Stream, merges: list[float], cold_starts: int) -> Times:
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    works: Mapping[str, Callable[[], object]] = {
        "count and avg": lambda: context.sql(_QUERY).to_arrow_table(),
        "scan of all columns": lambda: table.scan().read_all(),
        "table.get": lambda: table.get([stream.key()]),
    }
    found = {}
    for name, work in works.items():
        for _ in range(_ROUNDS):  # until what is kept in memory has been read
            work()
        found[name] = lower_quartile([seconds(work) for _ in range(_ROUNDS)])
    found["first query of a process"] = lower_quartile(
        [float(run_child("first-query", table.uri, _QUERY).words[0]) for _ in range(cold_starts)]
    )
    return {**found, "merge": median(merges)}


@contextmanager
def _jobs(uri: Path) -> Iterator[None]:
    command = [*JOBS, str(uri), "--interval", "1", "--grace-seconds", "60"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as jobs:
        try:
            yield
        finally:
            jobs.terminate()
            jobs.wait()
