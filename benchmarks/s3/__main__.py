"""`python -m benchmarks.s3`: requests, rounds and cost of each operation on an S3 server."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.s3.operations import Operation, operations
from benchmarks.s3.requests import cost, kinds, rounds
from benchmarks.s3.server import proxied_server, versitygw

_WIDTH = 150
_HEADINGS = ("operation", "rounds", "requests", "cost", "kinds", "reach", "ok?", "plain Lance")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every bound is reached, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.s3", description=__doc__)
    parser.add_argument("--moto", action="store_true", help="even where Go can build versitygw")
    parser.add_argument("--delay", type=int, default=30, metavar="MILLISECONDS")
    parser.add_argument("--requests", action="store_true", help="print each request, too")
    parser.add_argument("--few", action="store_true", help="without the table of 1,000 regions")
    options = parser.parse_args(arguments)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    gateway = None if options.moto else versitygw()
    with (
        tempfile.TemporaryDirectory() as folder,
        proxied_server(Path(folder), gateway, options.delay) as server,
    ):
        measured = list(operations(server.options, server.log, many=not options.few))
    if options.requests:
        for operation in measured:
            _print_requests(operation, console)
    _print(measured, "moto" if gateway is None else "versitygw", options.delay, console)
    return int(any(_ok(operation) is False for operation in measured))


def _print(measured: Sequence[Operation], server: str, delay: int, console: Console) -> None:
    title = f"requests to {server}, each {delay} ms late; cost in GETs"
    table = Table(title=title, title_justify="left")
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading in ("operation", "kinds") else "right")
    for operation in measured:
        reach = (
            ""
            if operation.bound is None
            else f"{operation.bound.rounds:g} / {operation.bound.requests:g}"
        )
        lance = (
            "" if operation.lance is None else f"{rounds(operation.lance)} / {len(operation.lance)}"
        )
        ok = {None: "", True: "[green]yes[/]", False: "[bold red]no[/]"}[_ok(operation)]
        figures = map(
            str, (rounds(operation.requests), len(operation.requests), cost(operation.requests))
        )
        table.add_row(operation.name, *figures, kinds(operation.requests), reach, ok, lance)
    console.print(table)


def _print_requests(operation: Operation, console: Console) -> None:
    console.print(operation.name, style="bold")
    start = min((request.start for request in operation.requests), default=0.0)
    for request in operation.requests:
        begin, end = 1000 * (request.start - start), 1000 * (request.end - start)
        console.print(f"  {begin:6.0f} {end:6.0f} {request.kind:6} {request.path}", highlight=False)


def _ok(operation: Operation) -> bool | None:
    bound, requests = operation.bound, operation.requests
    if bound is None:
        return None
    return rounds(requests) <= bound.rounds and len(requests) <= bound.requests


if __name__ == "__main__":
    raise SystemExit(main())
