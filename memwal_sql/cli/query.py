"""Commands that ask: `sql` and `explain`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import datafusion
import pyarrow as pa
import typer

from memwal_sql.cli.options import (
    CheckpointName,
    Output,
    OutputOption,
    StorageOptions,
    Timestamp,
    Uri,
    Version,
    opened,
)
from memwal_sql.cli.output import print_line, remark, show_json, show_json_rows, show_rows
from memwal_sql.errors import InvalidCallError
from memwal_sql.sql.errors import original_error
from memwal_sql.sql.register import register
from memwal_sql.sql.result_names import check_names_differ
from memwal_sql.table import Table

_NAME = "t"

Query = Annotated[str, typer.Argument(help=f"SQL; the table is called {_NAME}.")]
Consistency = Annotated[str, typer.Option("--consistency", help="strong, manifest or eventual.")]
Most = Annotated[
    int, typer.Option("--max-rows", min=1, help="Show no more rows than this in a terminal.")
]


def sql(
    uri: Uri,
    query: Query,
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
    consistency: Consistency = "strong",
    max_rows: Most = 1000,
    version: Version = None,
    timestamp: Timestamp = None,
    checkpoint: CheckpointName = None,
) -> None:
    """Run a SQL statement over the table, which is called t (and t$regions and so on)."""
    with opened(uri, options, version=version, timestamp=timestamp, checkpoint=checkpoint) as table:
        columns, rows = _run(table, query, consistency)
        if output is Output.JSON:
            check_names_differ(columns)
            show_json_rows(rows)
        elif columns:
            _show_first(rows, max_rows)
        else:  # a statement that changes the session: INSERT and COPY return a count
            remark("done, in a session that ends with this command")


def explain(
    uri: Uri,
    query: Query,
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Run it, and show what every node did.")
    ] = False,
    consistency: Consistency = "strong",
    version: Version = None,
    timestamp: Timestamp = None,
    checkpoint: CheckpointName = None,
) -> None:
    """Show the plan of a SQL statement."""
    statement = f"EXPLAIN {'ANALYZE ' if analyze else ''}{query}"
    with opened(uri, options, version=version, timestamp=timestamp, checkpoint=checkpoint) as table:
        _, rows = _run(table, statement, consistency)
        plans = [row for batch in rows for row in batch.to_pylist()]
    if output is Output.JSON:
        show_json(plans)
        return
    for row in plans:
        print_line(f"{row['plan_type']}\n{row['plan'].rstrip()}\n")


def _show_first(batches: Iterator[pa.RecordBatch], most: int) -> None:
    """The first rows; no more are read than it takes to know that there are more."""
    taken: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        taken.append(batch)
        rows += batch.num_rows
        if rows > most:
            break
    if not rows:
        remark("no rows")
        return
    show_rows(pa.Table.from_batches(taken).slice(0, most), Output.TABLE)
    if rows > most:
        remark(f"only the first {most} rows: --max-rows shows more")


def _run(table: Table, query: str, consistency: str) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """The columns of a result, and its batches as they come."""
    context = datafusion.SessionContext()
    register(context, _NAME, table, consistency)
    with _errors_of_calls():
        frame = context.sql(query)
    return frame.schema().names, _batches(context, frame)


def _batches(
    context: datafusion.SessionContext, frame: datafusion.DataFrame
) -> Iterator[pa.RecordBatch]:
    with _errors_of_calls():
        for batch in frame.execute_stream():
            yield batch.to_pyarrow()
    del context  # a frame can't outlive its session


@contextmanager
def _errors_of_calls() -> Iterator[None]:
    """What DataFusion raises becomes the original error, or one of the statement."""
    try:
        yield
    except Exception as error:
        original = original_error(error)
        if original is not None:
            raise original from None
        if "FFI error" in str(error):  # something of ours failed that should not have
            raise
        raise InvalidCallError(str(error).removeprefix("DataFusion error: ")) from None
