"""`python -m benchmarks.large`: what operations cost as a table grows to 100,000,000 rows.

Rows are an integer key, a double and a text of 20 bytes, in 16 regions. Each size is loaded and
merged by one process and read by another.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import datafusion
import numpy as np
import psutil  # type: ignore[import-untyped]
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import memwal_sql as mw
from benchmarks.support.chart import chart
from benchmarks.support.data import WrongResultError

_ROWS = (1_000_000, 10_000_000, 100_000_000)
_REGIONS = 16
_BATCH = 250_000
_UPDATED = 1_000_000
_GETS = 60
_UPSERTS = 20
_MEMORY = "4GiB"
_SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("val", pa.float64()), ("text", pa.string())]
)
Figures = dict[str, float]
_DRAWN = (
    "load, s",
    "merge of 1,000,000 updates, s",
    "count(*), avg(val) FROM t, first, ms",
    "count(*), avg(val) FROM t, again, ms",
    "durable upsert of 1,000, ms",
    "get, the first 60, ms",
    "get, the next 60, ms",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table with a column for each size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=_ROWS, help="sizes to measure")
    parser.add_argument("--folder", type=Path, default=Path(".benchmarks"))
    parser.add_argument("--output", type=Path, help="also write the figures here, as JSON")
    parser.add_argument("--chart", type=Path, help="also draw the figures here, as SVG")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    measured: dict[int, Figures] = {}
    for count in options.rows:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            measured[count] = {}
            for work in (_write, _read):
                measured[count] |= _in_a_process(work, folder, count)
    _print(measured)
    if options.output:
        options.output.write_text(json.dumps(measured, indent=1))
    if options.chart:
        options.chart.write_text(_chart(measured))
    return 0


def _in_a_process(work: Callable[[str, int], Figures], folder: str, count: int) -> Figures:
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(work, f"{folder}/table", count).result()


def _print(measured: dict[int, Figures]) -> None:
    table = Table(title=f"{_REGIONS} regions, memory={_MEMORY!r}", title_justify="left")
    table.add_column("operation")
    for count in measured:
        table.add_column(f"{count:,}", justify="right")
    for name in next(iter(measured.values())):
        table.add_row(name, *(f"{figures[name]:,.3g}" for figures in measured.values()))
    Console(width=120).print(table)


def _chart(measured: dict[int, Figures]) -> str:
    lines: dict[str, list[float]] = {}
    for name in _DRAWN:
        operation, _, unit = name.rpartition(", ")
        factor = 1000 if unit == "s" else 1
        lines[operation] = [factor * figures[name] for figures in measured.values()]
    return chart("Time of operations by size", "rows", "milliseconds", list(measured), lines)


def _batches(keys: np.ndarray[Any, np.dtype[np.int64]]) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(keys), _BATCH):
        ids = keys[start : start + _BATCH]
        values = (ids * 2_654_435_761 % 1_000_003) / 1_000_003
        texts = np.char.zfill(ids.astype("U20"), 20)
        yield pa.record_batch([ids, values, pa.array(texts, pa.string())], schema=_SCHEMA)


def _write(uri: str, count: int) -> Figures:
    """Load the table, merge it, and merge updates of a part of it."""
    mw.configure(memory=_MEMORY)
    table = mw.create_table(uri, _SCHEMA, "id", regions=[mw.bucket("id", _REGIONS)])
    figures: Figures = {}
    with table.writer(durable=False) as writer:
        with _timed(figures, "load, s"):
            for batch in _batches(np.arange(count)):
                writer.upsert(batch)
            writer.flush()
        with _timed(figures, "merge of all, s"):
            table.merge()
        with _timed(figures, "build_indexes, s"):
            table.build_indexes()
        most = min(_UPDATED, count)
        updated = np.random.default_rng(1).choice(count, most, replace=False)
        with _timed(figures, "upsert of 1,000,000 updates, s"):
            for batch in _batches(updated):
                writer.upsert(batch)
            writer.flush()
        with _timed(figures, "merge of 1,000,000 updates, s"):
            table.merge()
        with _timed(figures, "build_indexes after 1,000,000 updates, s"):
            table.build_indexes()
    with table.writer() as writer:
        few = list(_batches(np.arange(1_000)))
        writer.upsert(few[0])
        with _timed(figures, "durable upsert of 1,000, ms", 1000 / _UPSERTS):
            for _ in range(_UPSERTS):
                writer.upsert(few[0])
    figures["resident size while writing, GB"] = psutil.Process().memory_info().rss / 1e9
    return figures


def _read(uri: str, count: int) -> Figures:
    """Queries of a new process, first and again."""
    mw.configure(memory=_MEMORY)
    figures: Figures = {}
    with _timed(figures, "open, ms", 1000):
        table = mw.open_table(uri)
    keys = np.random.default_rng(2).choice(count, 2 * _GETS, replace=False).tolist()
    for name, some in (("first", keys[:_GETS]), ("next", keys[_GETS:])):
        with _timed(figures, f"get, the {name} {_GETS}, ms", 1000 / _GETS):
            for key in some:
                if table.get(key).num_rows != 1:
                    raise WrongResultError(f"row {key} is not there")
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    for query in ("count(*), avg(val) FROM t", "count(*) FROM t WHERE val > 0.9"):
        for name in ("first", "again"):
            with _timed(figures, f"{query}, {name}, ms", 1000):
                context.sql(f"SELECT {query}").to_arrow_table()
    if table.count_rows() != count:
        raise WrongResultError(f"{table.uri} has lost rows")
    figures["resident size while reading, GB"] = psutil.Process().memory_info().rss / 1e9
    return figures


@contextmanager
def _timed(figures: Figures, name: str, unit: float = 1.0) -> Iterator[None]:
    """Note how long the context takes: seconds, times `unit`."""
    start = perf_counter()
    yield
    figures[name] = (perf_counter() - start) * unit


if __name__ == "__main__":
    raise SystemExit(main())
