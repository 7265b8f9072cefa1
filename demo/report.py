"""What the demo prints: in a terminal with a progress bar, in a log file line by line."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import groupby

import datafusion
import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from demo.checks import Outcome
from demo.events import EventBatch
from demo.examples import Example
from demo.monitor import Observation

LOG_WIDTH = 110
SHOWN_ROWS = 5
SHOWN_PLAN_LINES = 16


def make_console() -> Console:
    """A console as wide as the terminal, or of a fixed width where there is none."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=LOG_WIDTH)


def show_replay(
    console: Console, events: int, batches: Iterable[EventBatch], seen: Sequence[Observation]
) -> None:
    """Go through the batches of a replay: a bar (in a terminal only), and a line when a month is
    over; `seen` is what the second process has seen so far."""
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("events"), TimeElapsedColumn())
    quiet = not console.is_terminal
    description = TextColumn("{task.description}")
    with Progress(description, *columns, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task("replaying", total=events)
        for month, days in groupby(batches, key=lambda batch: f"{batch.day:%Y-%m}"):
            start, count = time.perf_counter(), 0
            for batch in days:
                count += batch.events
                bar.update(task, advance=batch.events, description=f"{batch.day}")
            rate = count / (time.perf_counter() - start)
            line = f"  {month}  {count:>7,} events  {rate:>8,.0f} events/s"
            if seen:
                line += (
                    f"   second process: {seen[-1].flights:>7,} flights, {seen[-1].delayed:>6,}"
                    f" delayed, {seen[-1].seconds * 1000:>4.0f} ms"
                )
            console.print(line)


def print_summary(
    console: Console,
    context: datafusion.SessionContext,
    events: int,
    seconds: float,
    observations: Sequence[Observation],
) -> None:
    """A short table of what the replay left behind, asked from the table's own metadata."""
    counts = context.sql(
        "SELECT count(*) FILTER (WHERE state = 'flushed') AS generations,"
        " coalesce(sum(num_rows) FILTER (WHERE state = 'flushed'), 0) AS generations_rows,"
        " count(*) FILTER (WHERE state = 'memtable') AS memtables,"
        " coalesce(sum(num_rows) FILTER (WHERE state = 'memtable'), 0) AS memtables_rows"
        " FROM flights$generations"
    ).to_pylist()[0]
    regions = context.sql("SELECT count(*) AS n FROM flights$regions").to_pylist()[0]["n"]
    entries = context.sql("SELECT count(*) AS n FROM flights$wal WHERE kind = 'rows'")
    times = sorted(seen.seconds for seen in observations)
    flushed, held = (
        f"{counts[kind]:,} with {counts[f'{kind}_rows']:,} rows"
        for kind in ("generations", "memtables")
    )
    rows = {
        "events": f"{events:,} in {seconds:.1f} s, {events / seconds:,.0f} events/s, all durable",
        "regions": f"{regions:,}, one for each carrier",
        "flushed generations": flushed,
        "MemTables": held,
        "WAL entries": f"{entries.to_pylist()[0]['n']:,}",
        "queries meanwhile": f"{len(times):,} by the second process",
    }
    if times:
        rows["time of a query"] = (
            f"median {times[len(times) // 2]:.3f} s, longest {times[-1]:.3f} s"
        )
    table = Table(title="What happened", title_justify="left", show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table)


def print_outcome(console: Console, outcome: Outcome) -> None:
    """One line: what was checked, how long it took, and whether it came out right."""
    _print_verdict(console, outcome, f"{outcome.title}, {outcome.seconds * 1000:,.0f} ms")


def _print_verdict(console: Console, outcome: Outcome, text: str) -> None:
    verdict = ("ok", "green") if outcome.problem is None else ("WRONG", "red")
    console.print(Text.assemble("  ", verdict, f"  {text}"))
    if outcome.problem is not None:
        console.print(Text(f"      {outcome.problem}", "red"))


def print_example(console: Console, example: Example, outcome: Outcome) -> None:
    """A file of sql_examples/ with its plan and the first rows of its answer."""
    console.print()
    console.rule(Text(f"{example.name}: {example.title}", "bold"), align="left")
    console.print(Text(example.idea, "italic"))
    console.print()
    _print_indented(console, example.sql, "cyan")
    if outcome.plan is not None:
        console.print()
        _print_indented(console, outcome.plan, "dim", SHOWN_PLAN_LINES)
    if outcome.answer is not None:
        console.print(_answer(outcome.answer))
    _print_verdict(console, outcome, f"{outcome.seconds * 1000:,.0f} ms")


def _print_indented(console: Console, text: str, style: str, most: int | None = None) -> None:
    lines = text.splitlines()
    for line in lines[:most]:
        console.print(Text(f"  {line}", style), soft_wrap=True)
    if len(lines[:most]) < len(lines):
        console.print(Text(f"  ... {len(lines) - len(lines[:most])} more lines", style))


def _answer(answer: pa.Table) -> Table:
    shown = Table(pad_edge=True)
    for name in answer.column_names:
        shown.add_column(name, overflow="fold")
    for row in answer.slice(0, SHOWN_ROWS).to_pylist():
        shown.add_row(*(_cell(value) for value in row.values()))
    if answer.num_rows > SHOWN_ROWS:
        shown.caption = f"{answer.num_rows - SHOWN_ROWS:,} more rows"
        shown.caption_justify = "left"
    return shown


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
