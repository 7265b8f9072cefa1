"""`python -m benchmarks.large`: what operations cost as a table grows to 100,000,000 rows, and as
it gets 10,000 regions.

Rows are an integer key, a double and a text of 20 bytes, in 16 regions; many regions have three
rows each. Each size is loaded and merged by one process and read by another.
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

from benchmarks.large import regions, work
from benchmarks.large.work import MEMORY, REGIONS, Figures
from benchmarks.support.chart import chart

_ROWS = (1_000_000, 10_000_000, 100_000_000)
_MANY = (100, 1_000, 10_000)
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
    parser.add_argument("--rows", type=int, nargs="*", default=_ROWS, help="sizes to measure")
    parser.add_argument("--regions", type=int, nargs="*", default=_MANY, help="numbers of them")
    parser.add_argument("--folder", type=Path, default=Path(".benchmarks"))
    parser.add_argument("--output", type=Path, help="also write the figures here, as JSON")
    parser.add_argument("--chart", type=Path, help="also draw the figures here, as SVG")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    measured = _measured(options.folder, options.rows, (work.write, work.read))
    _print(measured, f"rows in {REGIONS} regions, memory={MEMORY!r}")
    many = _measured(options.folder, options.regions, (regions.write, regions.read))
    _print(many, "regions of three rows")
    if options.output:
        options.output.write_text(json.dumps([measured, many], indent=1))
    if options.chart and measured:
        options.chart.write_text(_chart(measured))
    return 0


def _measured(
    place: Path, sizes: Sequence[int], works: Sequence[Callable[[str, int], Figures]]
) -> dict[int, Figures]:
    measured: dict[int, Figures] = {}
    for count in sizes:
        with tempfile.TemporaryDirectory(dir=place) as folder:
            measured[count] = {}
            for each in works:
                measured[count] |= _in_a_process(each, folder, count)
    return measured


def _in_a_process(call: Callable[[str, int], Figures], folder: str, count: int) -> Figures:
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(call, f"{folder}/table", count).result()


def _print(measured: dict[int, Figures], title: str) -> None:
    if not measured:
        return
    table = Table(title=title, title_justify="left")
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
