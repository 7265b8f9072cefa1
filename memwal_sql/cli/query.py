"""Commands that ask: `sql` and `explain`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

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
    named_values,
    opened,
    pairs,
)
from memwal_sql.cli.output import print_line, remark, show_json
from memwal_sql.cli.prompt import prompt
from memwal_sql.cli.results import RowFormat, format_for, write_rows
from memwal_sql.errors import InvalidCallError
from memwal_sql.registration import mount
from memwal_sql.session.registered import table_name
from memwal_sql.statements.queries.parsed import parameters_of, statement_texts
from memwal_sql.statements.queries.places import errors_of_calls
from memwal_sql.statements.queries.planning import refuse_unused
from memwal_sql.statements.run import run
from memwal_sql.statements.transactions import open_transaction
from memwal_sql.table import Table
from memwal_sql.write.ingest.files import STDIN

_NAME = "t"
Answer = tuple[pa.Schema, Iterator[pa.RecordBatch]]

Query = Annotated[
    str | None,
    typer.Argument(
        help=f"SQL; the table is called {_NAME}. `-` reads it from standard input. Of several "
        "statements, with semicolons between, the rows of the last are shown."
    ),
]
QueryFile = Annotated[
    Path | None, typer.Option("--file", "-f", help="Read the SQL from this file instead.")
]
More = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        "-t",
        metavar="NAME=URI",
        help="One more table, with the same storage options; may be given several times.",
    ),
]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        "-p",
        metavar="NAME=VALUE",
        help="The value of $NAME: JSON, as 3, true, null and [0.5, 1], or else a text; may be given"
        " several times.",
    ),
]
Consistency = Annotated[str, typer.Option("--consistency", help="strong, manifest or eventual.")]
Most = Annotated[
    int | None,
    typer.Option(
        "--max-rows",
        min=1,
        help="No more rows than this. By default 1,000 in a terminal, and all elsewhere.",
    ),
]
Rows = Annotated[
    RowFormat | None,
    typer.Option(
        "--output",
        help="For people; JSON as an array or a line a row, and CSV, with bytes as hex digits; "
        "Parquet. By default what --to says, else for people.",
    ),
]


def sql(
    uri: Uri,
    query: Query = None,
    file: QueryFile = None,
    options: StorageOptions = None,
    output: Rows = None,
    to: Annotated[
        Path | None,
        typer.Option(help="Write the rows to this file; .csv, .json, .jsonl and .parquet say how."),
    ] = None,
    consistency: Consistency = "strong",
    max_rows: Most = None,
    more: More = None,
    parameters: Parameters = None,
    version: Version = None,
    timestamp: Timestamp = None,
    checkpoint: CheckpointName = None,
) -> None:
    """Run SQL statements over the table, which is called t (and t$regions and so on).

    Put them in single quotes: in double ones a shell replaces $name by its own variables.

    They are those of mw.sql: queries, INSERT, DELETE, UPDATE, CALL memwal.merge('t') and so on.
    Without any, a terminal asks for them, one after the other.
    """
    form = format_for(output, to)
    asks = query is None and file is None and to is None and sys.stdin.isatty()
    text = "" if asks else _text(query, file)
    with ExitStack() as stack:
        table = opened(uri, options, version=version, timestamp=timestamp, checkpoint=checkpoint)
        tables = {_NAME: stack.enter_context(table)}
        for name, place in pairs("--table", more):
            if table_name(name) in map(table_name, tables):
                raise InvalidCallError(f"--table {name}={place}: give it a name that no other has")
            tables[name] = stack.enter_context(opened(place, options))
        values = named_values("--param", parameters)
        context = _session(tables, consistency)
        if asks:
            prompt(
                lambda text: _answer(_run(context, text, _used(text, values)), form, None, max_rows)
            )
            _check_committed(context)
            return
        result = _run(context, text, values)
        _check_committed(context)
        _answer(result, form, to, max_rows)


def _used(text: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a text names."""
    with errors_of_calls():
        statements = statement_texts(text)
    names = _named(statements)
    return {name: value for name, value in values.items() if name in names}


def _answer(answer: Answer, form: RowFormat, to: Path | None, max_rows: int | None) -> None:
    schema, rows = answer
    if schema.names or form is RowFormat.JSON:
        write_rows(schema, rows, form, to, max_rows)
    else:  # a statement without an answer, as CREATE VIEW is; INSERT and COPY return a count
        remark("done, in a session that ends with this command")


def explain(
    uri: Uri,
    query: Query = None,
    file: QueryFile = None,
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Run it, and show what every node did.")
    ] = False,
    consistency: Consistency = "strong",
    parameters: Parameters = None,
    version: Version = None,
    timestamp: Timestamp = None,
    checkpoint: CheckpointName = None,
) -> None:
    """Show the plan of a SQL statement."""
    values = named_values("--param", parameters)
    text = f"EXPLAIN {'ANALYZE ' if analyze else ''}{_text(query, file)}"
    _check_parameters([text], values)
    with opened(uri, options, version=version, timestamp=timestamp, checkpoint=checkpoint) as table:
        context = _session({_NAME: table}, consistency)
        rows = _batches(context, run(context, text, values))
        plans = [row for batch in rows for row in batch.to_pylist()]
    if output is Output.JSON:
        show_json(plans)
        return
    for row in plans:
        print_line(f"{row['plan_type']}\n{row['plan'].rstrip()}\n")


def _text(query: str | None, file: Path | None) -> str:
    """The statement, from the argument, a file or standard input."""
    if (query is None) == (file is None):
        raise InvalidCallError("give one statement: as QUERY, by --file, or `-` and standard input")
    try:
        if query is not None:
            return sys.stdin.read() if query == STDIN else query
        return sys.stdin.read() if str(file) == STDIN else Path(str(file)).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidCallError(f"the statement can't be read: {error}") from None


def _check_parameters(texts: Sequence[str], parameters: Mapping[str, Any]) -> None:
    """Raise InvalidCallError for parameters that none of the texts has."""
    unused = parameters.keys() - _named(texts)
    refuse_unused(unused, "$name; within double quotes a shell replaces it, so use single quotes")


def _named(texts: Sequence[str]) -> set[str]:
    """The parameters that statements have."""
    with errors_of_calls():
        return {name for text in texts for name in parameters_of(text)}


def _session(tables: Mapping[str, Table], consistency: str) -> datafusion.SessionContext:
    context = datafusion.SessionContext()
    for name, table in tables.items():
        mount(context, name, table, consistency)
    return context


def _run(context: datafusion.SessionContext, text: str, parameters: Mapping[str, Any]) -> Answer:
    """The columns of the last statement's result, and its batches as they come."""
    frame: datafusion.DataFrame | None = None
    with errors_of_calls():
        statements = statement_texts(text)
    _check_parameters(statements, parameters)
    for statement in statements:
        if frame is not None:
            for _ in _batches(context, frame):
                pass
        frame = run(context, statement, parameters)
    if frame is None:
        raise InvalidCallError("there is no statement in the text")
    return frame.schema(), _batches(context, frame)


def _check_committed(context: datafusion.SessionContext) -> None:
    if open_transaction(context) is not None:
        raise InvalidCallError(
            "the statements end within a transaction, and nothing of it was written: add COMMIT"
        )


def _batches(
    context: datafusion.SessionContext, frame: datafusion.DataFrame
) -> Iterator[pa.RecordBatch]:
    for batch in frame.execute_stream():
        yield batch.to_pyarrow()
    del context  # a frame can't outlive its session
