"""`python -m benchmarks.s3`: requests, milliseconds and cost of operations on an S3 server, and how
soon another process finds what was written."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.s3.freshness import freshness
from benchmarks.s3.operations import Operation, Run, operations
from benchmarks.s3.requests import cost, kinds, price, rounds
from benchmarks.s3.server import proxied_server, versitygw
from benchmarks.support.chart import bars
from memwal_sql.view.cost import Prices, read_prices

_WIDTH = 180
_HEADINGS = (
    "operation",
    "rounds",
    "requests",
    "cost",
    "ms",
    "kinds",
    "reach",
    "ok?",
    "plain Lance",
    "its ms",
)
_DRAWN = (
    "durable upsert, 1,000 rows",
    "get, strong",
    "SQL lookup, strong",
    "count(*), strong",
    "open_table",
    "first get of a process",
    "first count(*) of a process",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every bound is reached, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.s3", description=__doc__)
    parser.add_argument("--moto", action="store_true", help="even where Go can build versitygw")
    parser.add_argument("--delay", type=int, default=30, metavar="MILLISECONDS")
    parser.add_argument("--requests", action="store_true", help="print each request, too")
    parser.add_argument("--few", action="store_true", help="without the table of 1,000 regions")
    parser.add_argument("--prices", type=Path, help="also tell prices, by this list")
    parser.add_argument("--chart", type=Path, help="also draw the milliseconds here, as SVG")
    options = parser.parse_args(arguments)
    prices = None if options.prices is None else read_prices(options.prices)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    gateway = None if options.moto else versitygw()
    with (
        tempfile.TemporaryDirectory() as folder,
        proxied_server(Path(folder), gateway, options.delay) as server,
    ):
        measured = list(operations(server.options, server.log, many=not options.few))
        waits = list(freshness(server.options))
    if options.requests:
        for operation in measured:
            _print_requests(operation, console)
    server_name = "moto" if gateway is None else "versitygw"
    title = f"requests to {server_name}, each {options.delay} ms late; cost in GETs"
    console.print(_table(measured, title, prices))
    for name, seconds in waits:
        times = f"{1e3 * median(seconds):,.0f} ms, at most {1e3 * max(seconds):,.0f} ms"
        console.print(f"acknowledged, then in the answer of another process, {name}: {times}")
    if options.chart:
        options.chart.write_text(_chart(measured))
    return int(any(_ok(operation) is False for operation in measured))


def _table(measured: Sequence[Operation], title: str, prices: Prices | None) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in (*_HEADINGS, *([] if prices is None else ["price of"])):
        table.add_column(heading, justify="left" if heading in ("operation", "kinds") else "right")
    for operation in measured:
        requests, bound = operation.run.requests, operation.bound
        reach = "" if bound is None else f"{bound.rounds:g} / {bound.requests:g}"
        ok = {None: "", True: "[green]yes[/]", False: "[bold red]no[/]"}[_ok(operation)]
        cells = [
            operation.name,
            str(rounds(requests)),
            str(len(requests)),
            str(cost(requests)),
            _milliseconds(operation.run),
            kinds(requests),
            reach,
            ok,
        ]
        lance = operation.lance
        cells += ["", ""] if lance is None else [_counts(lance), _milliseconds(lance)]
        if prices is not None:
            amount = operation.priced * price(requests, prices)
            cells.append(f"{operation.priced:,}: {amount:,.4g} {prices.currency}")
        table.add_row(*cells)
    return table


def _counts(run: Run) -> str:
    return f"{rounds(run.requests)} / {len(run.requests)}"


def _milliseconds(run: Run) -> str:
    return "" if run.seconds is None else f"{1e3 * run.seconds:,.0f}"


def _chart(measured: Sequence[Operation]) -> str:
    groups: dict[str, dict[str, float]] = {}
    for operation in measured:
        for who, run in (("memwal_sql", operation.run), ("plain Lance", operation.lance)):
            if operation.name in _DRAWN and run is not None and run.seconds is not None:
                groups.setdefault(operation.name, {})[who] = 1e3 * run.seconds
    return bars("Milliseconds of operations on an object store", "ms", groups)


def _print_requests(operation: Operation, console: Console) -> None:
    console.print(operation.name, style="bold")
    requests = operation.run.requests
    start = min((request.start for request in requests), default=0.0)
    for request in requests:
        begin, end = 1000 * (request.start - start), 1000 * (request.end - start)
        console.print(f"  {begin:6.0f} {end:6.0f} {request.kind:6} {request.path}", highlight=False)


def _ok(operation: Operation) -> bool | None:
    bound, requests = operation.bound, operation.run.requests
    if bound is None:
        return None
    return rounds(requests) <= bound.rounds and len(requests) <= bound.requests


if __name__ == "__main__":
    raise SystemExit(main())
