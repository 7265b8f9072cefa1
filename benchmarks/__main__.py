"""Command line: run the benchmarks and print one table."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.during_merge import during_merge
from benchmarks.fresh_sql import beside_writes, generations_sql, many_rows_sql
from benchmarks.full_text_search import full_text_search, indexed_upserts
from benchmarks.indexed_flush import indexed_flush
from benchmarks.lookups import get_keys, get_many, get_one, sql_lookup
from benchmarks.memory import streaming_memory, writing_memory
from benchmarks.merging import merging
from benchmarks.mixed import mixed, replaced_scan
from benchmarks.opening import first_get, opening
from benchmarks.scans import filtered_scan, first_scan, full_scan, generations_scan
from benchmarks.several_writers import several_writers, short_programs
from benchmarks.statements import sql_statements, statements
from benchmarks.support.machine import machine_facts
from benchmarks.support.result import Result, print_report, write_json
from benchmarks.support.sizes import FULL, SMALL
from benchmarks.support.workspace import Workspace
from benchmarks.vector_search import vector_search
from benchmarks.warm_sql import warm_sql
from benchmarks.writes import durable_upserts, sustained_upserts, upserts_beside_work

_WIDTH = 150  # of the report in a file or a pipe
Run = Callable[[Iterable[str], Path, bool, Console], list[Result]]

Benchmark = Callable[[Workspace], Iterator[Result]]

BENCHMARKS: Mapping[str, Benchmark] = {
    "full-scan": full_scan,
    "first-scan": first_scan,
    "filtered-scan": filtered_scan,
    "get-one": get_one,
    "get-keys": get_keys,
    "get-many": get_many,
    "sql-lookup": sql_lookup,
    "warm-sql": warm_sql,
    "beside-writes": beside_writes,
    "generations-sql": generations_sql,
    "many-rows-sql": many_rows_sql,
    "durable-upserts": durable_upserts,
    "upserts-beside-work": upserts_beside_work,
    "sustained-upserts": sustained_upserts,
    "several-writers": several_writers,
    "short-programs": short_programs,
    "statements": statements,
    "sql-statements": sql_statements,
    "mixed": mixed,
    "replaced-scan": replaced_scan,
    "generations-scan": generations_scan,
    "streaming-memory": streaming_memory,
    "writing-memory": writing_memory,
    "first-get": first_get,
    "opening": opening,
    "merging": merging,
    "during-merge": during_merge,
    "full-text-search": full_text_search,
    "indexed-upserts": indexed_upserts,
    "indexed-flush": indexed_flush,
    "vector-search": vector_search,
}


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
        choices=[*catalog],
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
