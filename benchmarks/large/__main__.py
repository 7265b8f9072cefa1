"""`python -m benchmarks.large`: what operations cost as a table grows to 100,000,000 rows.

Rows are an integer key, a double and a text of 20 bytes, in 16 regions. Each size is loaded and
merged by one process and read by another.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.large.work import MEMORY, REGIONS, Figures, read, write
from benchmarks.support.chart import chart

_ROWS = (1_000_000, 10_000_000, 100_000_000)
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
            for work in (write, read):
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
    table = Table(title=f"{REGIONS} regions, memory={MEMORY!r}", title_justify="left")
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


if __name__ == "__main__":
    raise SystemExit(main())
