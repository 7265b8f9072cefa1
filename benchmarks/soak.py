"""A table in use for minutes: a writer, all background jobs and readers at once.

    python -m benchmarks.soak --minutes 10

Every key is written again and again, so the live rows stay as many as they are: files, memory and
the time that reads take must stay flat, too. The first third of the time is left out, as caches
fill in it. Every answer is checked while the jobs run, and the table as a whole at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE

import numpy as np
import psutil  # type: ignore[import-untyped]
import pyarrow as pa
from rich.console import Console
from rich.table import Table as Grid

import memwal_sql as mw
from benchmarks.children import KEYS, SCHEMA, WIDTH, rows_of
from benchmarks.support.child import JOBS
from benchmarks.support.data import WrongResultError

_TRIGGERS = {
    "merge-generations": 4,
    "interval": 1,
    "snapshot-seconds": 15,
    "collect-seconds": 10,
    "grace-seconds": 10,
    "version-seconds": 20,
}
_PAUSE_SECONDS = 0.05
_SAMPLES = 300
# How much the last third may be above the second: neighbours on the machine count, too.
_GROWTH = 1.25
_SLOWER = 1.5
_THIRDS = 3

Summary = Callable[[Sequence[float]], float]
Child = subprocess.Popen[str]


@dataclass
class Samples:
    """Figures over time, each with the seconds since the start."""

    by_name: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def add(self, name: str, at: float, value: float) -> None:
        """Note a figure."""
        self.by_name.setdefault(name, []).append((at, value))

    def thirds(self, name: str, end: float, take: Summary) -> list[float]:
        """What `take` makes of the figures of each third of the time."""
        parts: list[list[float]] = [[] for _ in range(_THIRDS)]
        for at, value in self.by_name[name]:
            parts[min(_THIRDS - 1, int(at / end * _THIRDS))].append(value)
        return [take(part) for part in parts]


class Reader:
    """Reads in every way, and looks whether what it sees could be."""

    def __init__(self, table: mw.Table) -> None:
        self._table = table
        self._random = np.random.default_rng(17)
        self._seen = np.zeros(KEYS, np.int64)

    def ways(self) -> Mapping[str, Callable[[], None]]:
        """The reads, by name."""
        return {
            "get": self._get,
            "scan": self._scan,
            "vector search": self._vectors,
            "text search": self._texts,
        }

    def _get(self) -> None:
        self._note(self._table.get([int(self._random.integers(KEYS))], ["id", "step"]))

    def _scan(self) -> None:
        self._note(self._table.scan(["id", "step"]).read_all())

    def _vectors(self) -> None:
        query = self._random.random(WIDTH, np.float32)
        neighbours = self._table.vector_search("vec", query, 10, columns=["id", "step"])
        self._note(neighbours, 10)

    def _texts(self) -> None:
        word = f"word{self._random.integers(100)}"
        self._note(self._table.full_text_search("body", word, 10, columns=["id", "step"]), 10)

    def _note(self, neighbours: pa.Table, rows: int | None = None) -> None:
        """No key twice, none older than it was seen before, and as many rows as were asked for."""
        ids, steps = neighbours["id"].to_numpy(), neighbours["step"].to_numpy()
        if len(np.unique(ids)) < len(ids) or (steps < self._seen[ids]).any():
            raise WrongResultError(f"replaced rows came back: {neighbours.to_pylist()[:20]}")
        if rows is not None and len(ids) != rows:
            raise WrongResultError(f"{len(ids)} rows were found instead of {rows}")
        self._seen[ids] = steps


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every answer was right and everything stayed flat, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--folder", type=Path, default=Path(".benchmarks"))
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        samples, jobs = _run(Path(folder) / "table", options.minutes * 60)
    return _report(samples, jobs, options.minutes * 60)


def _run(uri: Path, duration: float) -> tuple[Samples, list[str]]:
    table = mw.create_table(uri, SCHEMA, "id")
    with table.writer(durable=False) as writer:
        writer.upsert(rows_of(np.arange(KEYS), 0))
        writer.flush()
    table.merge()
    table.create_index("vec", "IVF_FLAT", num_partitions=16)
    table.create_index("body", "FTS")
    samples, reader = Samples(), Reader(table)
    start = sampled = time.monotonic()
    with _children(uri) as (writes, jobs, log):
        processes = {"reader": os.getpid(), "writer": writes.pid, "jobs": jobs.pid}
        while (at := time.monotonic() - start) < duration:
            for name, read in reader.ways().items():
                before = time.perf_counter()
                read()
                samples.add(f"{name}, ms", at, (time.perf_counter() - before) * 1e3)
            if time.monotonic() - sampled > duration / _SAMPLES:
                sampled = time.monotonic()
                samples.add("files", at, sum(len(files) for _, _, files in os.walk(uri)))
                for name, process in processes.items():
                    resident = psutil.Process(process).memory_info().rss
                    samples.add(f"memory of the {name}, MB", at, resident / 1e6)
            if writes.poll() is not None or jobs.poll() is not None:
                raise subprocess.CalledProcessError(writes.returncode or jobs.returncode, JOBS)
            time.sleep(_PAUSE_SECONDS)
    _check_end(table, np.load(uri.parent / "steps.npy"))
    return samples, log


@contextmanager
def _children(uri: Path) -> Iterator[tuple[Child, Child, list[str]]]:
    """The writer and the job loop; their end, and what the loop has done."""
    options = [part for name, value in _TRIGGERS.items() for part in (f"--{name}", str(value))]
    writer = [sys.executable, "-m", "benchmarks.children", "soak", str(uri)]
    log: list[str] = []
    with (
        (uri.parent / "jobs.json").open("w+") as output,
        subprocess.Popen(writer, stdin=PIPE, text=True) as writes,
        subprocess.Popen(
            [*JOBS, str(uri), *options, "--output", "json"], stdout=output, text=True
        ) as jobs,
    ):
        try:
            yield writes, jobs, log
        finally:
            if writes.stdin is not None:
                writes.stdin.close()
            writes.wait()
            jobs.terminate()
            jobs.wait()
        output.seek(0)
        log += output.readlines()
        if writes.returncode or jobs.returncode != -signal.SIGTERM:
            raise subprocess.CalledProcessError(writes.returncode or jobs.returncode, JOBS)


def _check_end(table: mw.Table, steps: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    """The table holds what was written last, and nothing about it is wrong."""
    rows_read = table.scan(["id", "step"]).read_all().sort_by("id")
    live = np.flatnonzero(steps >= 0)
    if not np.array_equal(rows_read["id"].to_numpy(), live):
        raise WrongResultError(f"{rows_read.num_rows} keys are left instead of {len(live)}")
    if not np.array_equal(rows_read["step"].to_numpy(), steps[live]):
        raise WrongResultError("rows are not those that were written last")
    checked = table.check()
    if not checked.ok:
        raise WrongResultError(str(checked))


def _report(samples: Samples, jobs: Sequence[str], duration: float) -> int:
    grid = Grid(title=f"{duration:.0f} seconds")
    for name in ("figure", "first third", "second", "last", "last / second", "ok?"):
        grid.add_column(name, justify="right")
    steady = True
    for name in samples.by_name:
        for label, take, most in _figures(name):
            thirds = samples.thirds(name, duration, take)
            ratio = thirds[2] / thirds[1]
            steady &= ratio <= most
            ok = "yes" if ratio <= most else f"no: above {most}"
            grid.add_row(label, *(f"{figure:.1f}" for figure in thirds), f"{ratio:.2f}", ok)
    Console(width=120).print(grid)
    runs = [json.loads(line) for line in jobs]
    for job in sorted({run["job"] for run in runs}):
        own = [run for run in runs if run["job"] == job]
        failed = sum(run["failed"] for run in own)
        longest = max(run["seconds"] for run in own)
        print(f"{job}: {len(own)} times, {failed} failed, {longest:.1f} s at most")
    return 0 if steady else 1


def _figures(name: str) -> list[tuple[str, Summary, float]]:
    if not name.endswith("ms"):
        return [(f"{name}, most", max, _GROWTH)]
    return [
        (f"{name}, p{percent}", lambda values, p=percent: float(np.percentile(values, p)), _SLOWER)
        for percent in (50, 95)
    ]


if __name__ == "__main__":
    raise SystemExit(main())
