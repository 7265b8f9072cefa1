"""`python -m benchmarks.spark.counts`: what many tasks and regions cost, counted and not timed.

It needs no Spark: it calls the classes that Spark's workers call, with pickled messages between
them; the driver and one task of each kind are processes of their own, whose memory is looked at. A
read has so many slices of a table with one unmerged row in each region. In a write each task has a
row for each region, or, as after `repartition_by_region`, regions of its own or a part of one.
"""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import cloudpickle
from rich.console import Console
from rich.table import Table as Grid

import memwal_sql as mw
from memwal_sql.bulk.key_runs import HASHES, short_hashes
from memwal_sql.bulk.publish import routing_spec
from memwal_sql.bulk.rows import RowForm
from memwal_sql.bulk.stage import StageLimits
from memwal_sql.read.pinned import PinnedTable
from memwal_sql.spark import writer as spark_writer
from memwal_sql.spark.options import READ, WRITE, parse_options
from memwal_sql.spark.reader import BatchReader
from memwal_sql.spark.types import spark_schema
from memwal_sql.spark.writer import BatchWriter
from memwal_sql.storage.objects.local import LocalStore
from memwal_sql.storage.paths import STAGING_FOLDER

Counts = dict[str, int]
Ids = npt.NDArray[np.int64]

_SCHEMA = pa.schema({"id": pa.int64(), "val": pa.float64()})
_BASE_ROWS = 20_000
_LARGE = StageLimits(generation=1)


def read(folder: Path, tasks: int, regions: int, *, by_region: bool) -> Counts:
    """A read by so many tasks; `by_region`: fragments of the base table have rows of one region."""
    folder.mkdir(exist_ok=True)
    table, keys = _table(folder, regions, _BASE_ROWS)
    groups = keys if by_region else [np.concatenate(keys)]
    stager = [table.stager("fill", RowForm(), _LARGE, replaces=True) for _ in groups]
    table.replace_staged([s.stage([_rows(ids)]) for s, ids in zip(stager, groups, strict=True)])
    with table.writer() as writer:
        writer.upsert(pa.Table.from_batches([_rows(np.array([ids[0] for ids in keys]))]))
        writer.flush()
    rows = max(1, (_BASE_ROWS + regions) // tasks)
    planned = _child("plan", table.uri, str(rows), str(folder))
    done = _child("task", table.uri, str(folder))
    return {**planned, **done}


def written(folder: Path, tasks: int, regions: int, *, by_region: bool) -> Counts:
    """A write by so many tasks; `by_region`: each has regions of its own, or a part of one."""
    folder.mkdir(exist_ok=True)
    table, keys = _table(folder, regions, (2 * tasks + 60) * regions)
    with patch.object(spark_writer, "_limits", lambda: _LARGE if by_region else StageLimits()):
        writer = _writer(table.uri)
        parts = (_rows(ids) for ids in _shares(keys, tasks, by_region=by_region))
        sent = [pickle.dumps(writer.write(iter([part]))) for part in parts]
    (folder / "messages").write_bytes(pickle.dumps((writer, sent)))
    (folder / "rows").write_bytes(pickle.dumps(_rows(np.array([ids[-1] for ids in keys]))))
    return {
        "from a task, bytes": max(map(len, sent)),
        **_child("stage", table.uri, str(folder)),
        **_child("commit", table.uri, str(folder)),
    }


def _shares(keys: Sequence[Ids], tasks: int, *, by_region: bool) -> Iterator[Ids]:
    for task in range(tasks):
        if not by_region:
            yield np.array([ids[task] for ids in keys])
        elif tasks <= len(keys):
            yield np.concatenate([ids[:1] for ids in keys[task::tasks]])
        else:
            parts = -(-tasks // len(keys))
            own = keys[task % len(keys)]
            yield own[short_hashes([pa.array(own)]) * parts // HASHES == task // len(keys)]


def _table(folder: Path, regions: int, rows: int) -> tuple[mw.Table, list[Ids]]:
    """An empty table, and keys by region."""
    table = mw.create_table(folder / "table", _SCHEMA, "id", [mw.bucket("id", regions)])
    ids = np.arange(max(rows, 20 * regions))
    distinct, region_of_row = routing_spec(table.info).assign(pa.table({"id": ids}))
    order = np.argsort(region_of_row, kind="stable")
    ends = np.cumsum(np.bincount(region_of_row, minlength=distinct.num_rows))[:-1]
    return table, np.split(ids[order], ends)


def _rows(ids: Ids) -> pa.RecordBatch:
    return pa.record_batch([pa.array(ids), pa.array(ids / 7)], schema=_SCHEMA)


def _writer(uri: str) -> BatchWriter:
    options = parse_options({"path": uri}, WRITE, "writing")
    return BatchWriter(options, spark_schema(_SCHEMA), overwrite=False)


def _plan(uri: str, rows: str, folder: str) -> Counts:
    options = parse_options({"path": uri, "rowsPerPartition": rows}, READ, "reading")
    reader = BatchReader(options, spark_schema(_SCHEMA), 2)
    function = cloudpickle.dumps(reader)
    parts = [pickle.dumps(part) for part in reader.partitions()]
    (Path(folder) / "read").write_bytes(pickle.dumps((function, parts)))
    return {
        "partitions": len(parts),
        "to a task, bytes": max(map(len, parts)),
        "to an executor, bytes": len(function),
        "driver of a read, MB": _peak(),
    }


def _task(uri: str, folder: str) -> Counts:
    del uri
    function, parts = pickle.loads((Path(folder) / "read").read_bytes())
    most, opened, rebuild = 0, set[Any](), PinnedTable._sources  # noqa: SLF001

    def noted(self: Any, base: Any, region: Any) -> Any:
        opened.add(region.manifest.region_id)
        return rebuild(self, base, region)

    # Some tasks of fragments, each as the first one of a worker. Regions that are read are opened.
    shares = [share for share in map(pickle.loads, parts) if share.fragments]
    for share in shares[:: max(1, len(shares) // 5)]:
        reader: Any = pickle.loads(function)
        regions = [region.manifest.region_id for region in reader._pinned.regions]  # noqa: SLF001
        opened.clear()
        with patch.object(PinnedTable, "_sources", noted):
            for _ in reader.read(share):
                pass
        most = max(most, len(opened - {regions[place] for place in share.regions}))
    return {"regions that a task opens to mask": most, "worker of a read, MB": _peak()}


def _stage(uri: str, folder: str) -> Counts:
    rows = pickle.loads((Path(folder) / "rows").read_bytes())
    _writer(uri).write(iter([rows]))
    return {"worker of a write, MB": _peak()}


def _commit(uri: str, folder: str) -> Counts:
    del uri
    writer, sent = pickle.loads((Path(folder) / "messages").read_bytes())
    opened = count()
    with ExitStack() as patches:

        def counting(owner: Any, name: str) -> None:
            call: Callable[..., Any] = getattr(owner, name)

            def counted(*args: Any, **options: Any) -> Any:
                if any(STAGING_FOLDER in str(arg) for arg in args[:2]):
                    next(opened)
                return call(*args, **options)

            patches.enter_context(patch.object(owner, name, counted))

        for name in ("get", "get_range", "exists", "get_tail"):
            counting(LocalStore, name)
        counting(lance, "dataset")
        writer.commit([pickle.loads(message) for message in sent])
    return {"staged objects that the driver opens": next(opened), "driver of a write, MB": _peak()}


def _peak() -> int:
    """The most memory that this process has had, in MB. What `getrusage` says begins with the
    memory of the process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) // 1024


_CHILDREN = {"plan": _plan, "task": _task, "stage": _stage, "commit": _commit}


def _child(*arguments: str) -> Counts:
    command = [sys.executable, "-m", "benchmarks.spark.counts", "--child", *arguments]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    names = printed.strip().splitlines()[-1].split("; ")
    return {name: int(value) for name, value in (pair.split("=") for pair in names)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints four grids."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark.counts")
    parser.add_argument("--tasks", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--regions", type=int, nargs="+", default=[4, 64, 1000])
    parser.add_argument("--child", nargs="+")
    given = parser.parse_args(arguments)
    if given.child:
        name, *rest = given.child
        counts = _CHILDREN[name](*rest)
        print("; ".join(f"{what}={number}" for what, number in counts.items()))
        return 0
    console = Console(width=None if sys.stdout.isatty() else 180)
    for what, work in (("read", read), ("write", written)):
        for by_region, how in ((False, "rows of all regions"), (True, "rows of few regions")):
            grid: Grid | None = None
            for tasks in given.tasks:
                for regions in given.regions:
                    with tempfile.TemporaryDirectory() as folder:
                        counts = work(Path(folder), tasks, regions, by_region=by_region)
                    if grid is None:
                        title = f"{what}, {how} in each fragment or task"
                        grid = Grid("tasks", "regions", *counts, title=title)
                    numbers = (tasks, regions, *counts.values())
                    grid.add_row(*(f"{number:,}" for number in numbers))
                    print(what, how, tasks, regions, counts, file=sys.stderr)
            if grid is not None:
                console.print(grid)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
