"""Results on standard output: tables for people, JSON for machines.

Progress, errors and remarks go to standard error. Values, names and messages come from feeds:
characters that a terminal would obey are shown as escapes.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from enum import Enum
from typing import Any

import pyarrow as pa
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.segment import Segment, Segments
from rich.text import Text

from memwal_sql.cli.options import Output
from memwal_sql.cli.sinks import named_errors
from memwal_sql.maintain.progress import Progress, Report, report_nothing
from memwal_sql.view.texts import visible, visible_json, visible_lines

# Piped output is not cut off: whoever reads it wants whole lines.
_ENDLESS = 100_000


def stdout() -> Console:
    """The console for results."""
    width = None if sys.stdout.isatty() else _ENDLESS
    return Console(width=width, highlight=False)


def stderr() -> Console:
    """The console for everything else."""
    return Console(stderr=True, highlight=False)


def show(thing: RenderableType) -> None:
    """Write something for people."""
    console = stdout()
    shown = (
        Segment(visible_lines(text), style)
        for text, style, control in console.render(thing)
        if not control
    )
    with named_errors():
        console.print(Segments(shown), end="")


def remark(text: str, style: str = "dim") -> None:
    """Write a line that is not part of the result."""
    stderr().print(Text(visible_lines(text), style), soft_wrap=True)


def show_json(value: object) -> None:
    """Write one JSON document, or one line of JSON lines."""
    print_line(json_line(value))


def json_line(value: object) -> str:
    """A value as JSON on one line."""
    return visible_json(json.dumps(plain(value), ensure_ascii=False))


def show_result(value: object, text: str, output: Output) -> None:
    """Write a command's result: `value` for machines, `text` for people."""
    if output is Output.JSON:
        show_json(value)
    else:
        print_line(text)


def print_line(text: str) -> None:
    """Write lines."""
    with named_errors():
        sys.stdout.write(visible_lines(text) + "\n")
        sys.stdout.flush()


def show_rows(rows: pa.Table, output: Output, note: str | None = None) -> None:
    """Write the rows of a table; `note` says in the terminal what they are when there are none."""
    if output is Output.JSON:
        show_json(rows.to_pylist())
        return
    if not rows.num_rows and note is not None:
        remark(note)
        return
    for line in aligned_lines(rows.column_names, rows.to_batches()):
        print_line(line)


def aligned_lines(names: Sequence[str], batches: Sequence[pa.RecordBatch]) -> Iterator[str]:
    """Rows as lines of text, whole, however many and however wide. Numbers stand at the right."""
    if not any(batch.num_rows for batch in batches):
        return
    numeric = [
        pa.types.is_integer(f.type) or pa.types.is_floating(f.type) for f in batches[0].schema
    ]
    titles = [visible(name) for name in names]
    widths = [cell_len(title) for title in titles]
    for row in _rows_of_cells(batches):
        widths = [max(width, cell_len(cell)) for width, cell in zip(widths, row, strict=True)]
    for row in itertools.chain([titles], _rows_of_cells(batches)):
        yield "  ".join(map(_padded, row, widths, numeric)).rstrip()


def _rows_of_cells(batches: Sequence[pa.RecordBatch]) -> Iterator[list[str]]:
    for batch in batches:
        columns = (map(cell_text, column.to_pylist()) for column in batch.columns)
        yield from map(list, zip(*columns, strict=True))


def _padded(cell: str, width: int, is_number: bool) -> str:
    room = " " * (width - cell_len(cell))
    return room + cell if is_number else cell + room


def cell_text(value: object) -> str:
    """A value as people read it, on one line."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    shown = value if isinstance(value, str) else plain(value)
    return visible(shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False))


def plain(value: Any) -> Any:
    """A value in JSON's types: bytes as hex digits, times as ISO 8601, what JSON has no word for
    (NaN, infinities) as null."""
    if isinstance(value, Enum):
        return plain(value.value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value)


@contextmanager
def progress_bars(output: Output) -> Iterator[Report]:
    """Bars on standard error while a job runs; none where nobody watches."""
    console = stderr()
    if output is Output.JSON or not console.is_terminal:
        yield report_nothing
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        tasks: dict[tuple[str, str | None], Any] = {}

        def report(progress: Progress) -> None:
            key = (progress.job, progress.region)
            if key not in tasks:
                name = visible(" ".join(filter(None, key)))
                tasks[key] = bars.add_task(name, unit=progress.unit, total=progress.total)
            bars.update(tasks[key], completed=progress.done, total=progress.total)

        yield report
