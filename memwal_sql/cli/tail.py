"""`memwal tail`: the change feed on standard output, followed and resumed."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from memwal_sql.cli.options import Output, OutputOption, StorageOptions, Uri, opened
from memwal_sql.cli.output import cell_text, print_line, show_json
from memwal_sql.cli.sinks import replaced_file
from memwal_sql.errors import InvalidCallError
from memwal_sql.read.changes.old_rows import BEFORE
from memwal_sql.read.changes.region_feed import DELETE, FEED_FIELDS
from memwal_sql.table import Table
from memwal_sql.view.texts import visible

_OWN = tuple(field.name for field in FEED_FIELDS)


def tail(
    uri: Uri,
    region: Annotated[str | None, typer.Option(help="Only this region, by name or id.")] = None,
    after: Annotated[
        str | None,
        typer.Option(
            help="Begin after this place: a WAL position, position and generation as '\\[3, 1]', "
            "or either by region as JSON. By default at the beginning; with --follow, at the end."
        ),
    ] = None,
    offsets: Annotated[
        Path | None,
        typer.Option(help="A file that keeps the place: go on from there, and note it there."),
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option("--column", help="Only this column; may be repeated.")
    ] = None,
    old_rows: Annotated[
        bool, typer.Option("--old-rows", help="Also the row that a change replaced or deleted.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more.")] = False,
    interval: Annotated[float, typer.Option(min=0, help="Seconds between two looks.")] = 1.0,
    looks: Annotated[int | None, typer.Option(min=1, help="End after so many looks.")] = None,
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print what was written, row by row: upserts and deletes with their place."""
    table = opened(uri, options)
    places = _start(table, after, offsets, follow)
    names = column or None
    rounds = 0
    while True:
        for batch in table.changes(region, after=places, columns=names, old_rows=old_rows):
            _print(batch, output)
            places = _reached(places, batch)
            if offsets is not None:
                with replaced_file(offsets) as sink:
                    sink.write(json.dumps(places).encode())
        rounds += 1
        if not follow or rounds == looks:
            return
        time.sleep(interval)


def _start(table: Table, after: str | None, offsets: Path | None, follow: bool) -> Any:
    if offsets is not None and offsets.exists():
        try:
            text = offsets.read_bytes()
        except OSError as error:
            raise InvalidCallError(
                f"{str(offsets)!r} can't be read: {error.strerror}; name a file in a folder"
            ) from None
        return _decoded(text, f"the file {offsets}")
    if after is not None:
        return _decoded(after, "--after")
    return table.change_offsets() if follow else None


def _decoded(text: str | bytes, source: str) -> Any:
    try:
        offsets = json.loads(text)
        if offsets is None:  # to everybody else that is the beginning
            raise ValueError("it is null")
        return offsets
    except (ValueError, RecursionError) as error:
        raise InvalidCallError(
            f"{source} is not a place: {error}; write a place as `memwal tail --offsets` and "
            "`table.change_offsets()` do"
        ) from None


def _reached(places: Any, batch: pa.RecordBatch) -> dict[str, Any]:
    """The places after a batch, by region id."""
    region, position, generation = (
        batch.column(name)[-1].as_py() for name in ("_region", "_position", "_generation")
    )
    offsets = places if isinstance(places, dict) else {}
    return {**offsets, region: [position, generation]}


def _print(batch: pa.RecordBatch, output: Output) -> None:
    for row in batch.to_pylist():
        if output is Output.JSON:
            show_json(row)
            continue
        change, region, position, generation, transaction = (row.pop(name) for name in _OWN)
        shown = {k: v for k, v in row.items() if change != DELETE or v is not None}
        before = shown.pop(BEFORE, None)
        values = _values(shown)
        values += "" if before is None else f" _before: {_values(before)}"
        values += "" if transaction is None else f" _transaction={transaction}"
        print_line(f"{region[:8]} {position}.{generation} {change} {values}")


def _values(row: Mapping[str, Any]) -> str:
    return " ".join(f"{visible(name)}={cell_text(value)}" for name, value in row.items())
