"""`python -m benchmarks.spark`: Spark over MemWAL tables, as ratios in one run."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks.spark.session import local_spark
from benchmarks.spark.work import FULL, SMALL, Sizes, batch_write, reading, stream_write
from benchmarks.support.machine import machine_facts
from benchmarks.support.report import print_report
from benchmarks.support.result import Result

_WIDTH = 150
BENCHMARKS: Mapping[str, Callable[[SparkSession, Path, Sizes], Iterator[Result]]] = {
    "reading": reading,
    "batch-write": batch_write,
    "stream-write": stream_write,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every bound is reached, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--only", action="append", choices=BENCHMARKS, metavar="NAME")
    parser.add_argument("--small", action="store_true", help="sizes that only show that all runs")
    parser.add_argument("--folder", type=Path, default=Path(".benchmarks"))
    options = parser.parse_args(arguments)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    options.folder.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary).resolve()
        facts = machine_facts(folder)
        with local_spark(folder) as spark:
            for name in options.only or BENCHMARKS:
                results += BENCHMARKS[name](spark, folder, SMALL if options.small else FULL)
    print_report(results, facts, console)
    return int(any(result.reach is not None and not result.reach.ok for result in results))


if __name__ == "__main__":
    raise SystemExit(main())
