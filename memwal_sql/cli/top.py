"""`memwal top`: a live picture of a table, made again and again."""

from __future__ import annotations

import itertools
import os
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from select import select
from typing import Annotated

import typer
from rich.live import Live

from memwal_sql.cli.options import Output, OutputOption, StorageOptions, Uri, opened
from memwal_sql.cli.output import show, show_json, stdout
from memwal_sql.view.activity import activities

_MOST_REGIONS = 50


def top(
    uri: Uri,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two pictures.")] = 2.0,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many pictures.")] = None,
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Watch writes, logs, generations and jobs, until `q` or Ctrl-C. It reads the table's files; no
    writer or job knows of it."""
    table, console = opened(uri, options), stdout()
    is_live = console.is_terminal and output is not Output.JSON
    with _keys() if is_live else nullcontext(_sleep) as ended:
        rounds = itertools.count(1)
        seen = activities(table.overview, lambda: next(rounds) == count or ended(interval))
        if not is_live:
            for activity in seen:
                if output is Output.JSON:
                    show_json(asdict(activity) | {"rate": activity.rate})
                else:
                    show(activity.picture(_MOST_REGIONS))
            return
        with Live(console=console, screen=True, auto_refresh=False) as live:
            for activity in seen:
                other_lines = len(console.render_lines(activity.picture(0)))
                most_regions = max(1, console.size.height - other_lines)
                live.update(activity.picture(most_regions), refresh=True)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """A pause of so many seconds, which says whether it was ended by the key `q`."""
    if not sys.stdin.isatty():
        yield _sleep
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def ended(seconds: float) -> bool:
        end = time.monotonic() + seconds
        while select([terminal], [], [], max(0.0, end - time.monotonic()))[0]:
            if os.read(terminal, 1) in (b"q", b""):
                return True
        return False

    tty.setcbreak(terminal)
    try:
        yield ended
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
