"""Command line: run the benchmarks and print one table."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.catalog import BENCHMARKS
from benchmarks.support.machine import machine_facts
from benchmarks.support.report import print_report, write_json
from benchmarks.support.result import Result
from benchmarks.support.sizes import FULL, SMALL
from benchmarks.support.workspace import Workspace

_WIDTH = 150  # of the report in a file or a pipe
Run = Callable[[Iterable[str], Path, bool, Console], list[Result]]


def run(names: Iterable[str], folder: Path, small: bool, console: Console) -> list[Result]:
    """Run the named benchmarks one after the other over shared tables in `folder`."""
    results: list[Result] = []
    with Workspace(folder, SMALL if small else FULL) as workspace:
        for name in names:
            with console.status(f"{name} ..."):
                results += BENCHMARKS[name](workspace)
    return results


def main(
    arguments: Sequence[str] | None = None,
    prog: str = "python -m benchmarks",
    catalog: Mapping[str, object] = BENCHMARKS,
    run: Run = run,
) -> int:
    """Return 0 if every bound is reached, 1 if not."""
    parser = argparse.ArgumentParser(prog=prog)
    parser.add_argument(
        "--only",
        action="append",
        choices=catalog,
        metavar="NAME",
        help=f"run only this one; may be repeated: {', '.join(catalog)}",
    )
    parser.add_argument("--small", action="store_true", help="sizes that only show that all runs")
    parser.add_argument("--output", type=Path, help="also write the figures here, as JSON")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(".benchmarks"),
        help="on the disk to measure; tables are made and removed in it",
    )
    options = parser.parse_args(arguments)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary).resolve()
        facts = machine_facts(folder)
        results = run(options.only or list(catalog), folder, options.small, console)
    print_report(results, facts, console)
    if options.output:
        write_json(results, facts, options.output)
    return int(any(result.reach is not None and not result.reach.ok for result in results))


if __name__ == "__main__":
    raise SystemExit(main())
