"""A table after many small merges beside the job loop, compared with one after a single merge."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import datafusion
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.child import JOBS, run_child
from benchmarks.support.data import WrongResultError
from benchmarks.support.result import Result, at_most_ratio
from benchmarks.support.timing import interleaved, lower_quartile, seconds
from benchmarks.support.workspace import Workspace

_LIMIT = 1.5
_ROUNDS = 40
_JOB_INTERVAL_S = 1
# The loop looks at what the last merges left.
_ROUNDS_OF_JOBS = 3
# Lookups read Lance until they have cost more than to read all keys.
_ROUNDS_UNTIL_RESIDENT = 300
_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("step", pa.int64()),
        pa.field("price", pa.float64()),
        pa.field("name", pa.string()),
    ]
)
_QUERY = "SELECT count(*) AS n, avg(price) AS mean FROM t"


def many_merges(work: Workspace) -> Iterator[Result]:
    """Each merge replaces some rows here and there; `memwal run` looks after the rest."""
    return _merges(work, work.sizes.small_merges)


def thousand_merges(work: Workspace) -> Iterator[Result]:
    """The same for longer."""
    return _merges(work, 1_000)


def _merges(work: Workspace, count: int) -> Iterator[Result]:
    sizes = work.sizes
    young, old = (
        _Stream(work.folder / f"{name}-{count}-merges", sizes.base_rows, sizes.small_merge_rows)
        for name in ("young", "old")
    )
    young.merge(1)
    with _jobs(old.table.uri):
        old.merge(count)
        time.sleep(_ROUNDS_OF_JOBS * _JOB_INTERVAL_S)
    medians = _times({"young": young, "old": old}, sizes.cold_starts)
    for stream in (young, old):
        stream.check()
    for name, times in medians.items():
        line = f"{name}, after {count:,} merges of {sizes.small_merge_rows:,} rows"
        yield at_most_ratio(line, times["old"], times["young"], "after the first one", _LIMIT)


class _Stream:
    """Writes into a table, and knows what is in it."""

    def __init__(self, uri: Path, base: int, rows: int) -> None:
        self.table = table = mw.create_table(uri, _SCHEMA, "id")
        self._context = datafusion.SessionContext()
        mw.register(self._context, "t", table)
        self._rows = rows
        self._random = np.random.default_rng(7)
        self._steps = np.zeros(base, np.int64)
        with table.writer(durable=False, memtable_rows=base + 1) as writer:
            writer.upsert(_rows(np.arange(base), 0))
            writer.flush()
        table.merge()

    def merge(self, times: int) -> list[float]:
        """Write and merge so many times; the seconds of each merge."""
        merges = []
        with self.table.writer(durable=False) as writer:
            for _ in range(times):
                step = int(self._steps.max()) + 1
                keys = self._random.choice(len(self._steps), self._rows, replace=False)
                self._steps[keys] = step
                writer.upsert(_rows(keys, step))
                writer.flush()
                merges.append(seconds(self.table.merge))
        return merges

    def query(self) -> None:
        """Aggregate all rows."""
        self._context.sql(_QUERY).to_arrow_table()

    def get(self) -> None:
        """Look some row up."""
        self.table.get([int(self._random.integers(len(self._steps)))])

    def check(self) -> None:
        """Raise WrongResultError unless the table has what was written."""
        rows_read = self.table.scan(columns=["id", "step"]).read_all().sort_by("id")
        if rows_read["step"].to_numpy().tolist() != self._steps.tolist():
            raise WrongResultError("many merges: rows are not those that were written last")


def _rows(keys: np.ndarray, step: int) -> pa.Table:
    columns = [keys, np.full(len(keys), step), keys * 0.5, [f"name {key}" for key in keys]]
    return pa.table(list(map(pa.array, columns)), schema=_SCHEMA)


def _times(streams: Mapping[str, _Stream], cold_starts: int) -> Mapping[str, dict[str, float]]:
    """The seconds of each work, by stream: one runs after the other, so that whatever else the
    machine does slows both."""

    def each(work: Callable[[_Stream], object], warm_up: int = 10) -> dict[str, float]:
        works = {name: partial(work, stream) for name, stream in streams.items()}
        return interleaved(works, _ROUNDS, warm_up)

    quartiles = {
        "count and avg": each(_Stream.query),
        "scan of all columns": each(lambda stream: stream.table.scan().read_all()),
        "table.get": each(_Stream.get, _ROUNDS_UNTIL_RESIDENT),
    }
    first, merges = ({name: list[float]() for name in streams} for _ in range(2))
    for _ in range(cold_starts):
        for name, stream in streams.items():
            answer = run_child("first-query", stream.table.uri, _QUERY)
            first[name].append(float(answer.words[0]))
            merges[name] += stream.merge(2)
    for work, times in (("first query of a process", first), ("merge", merges)):
        quartiles[work] = {name: lower_quartile(seconds) for name, seconds in times.items()}
    return quartiles


@contextmanager
def _jobs(uri: str) -> Iterator[None]:
    command = [*JOBS, uri, "--interval", str(_JOB_INTERVAL_S), "--grace-seconds", "60"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as jobs:
        try:
            yield
        finally:
            jobs.terminate()
            jobs.wait()
