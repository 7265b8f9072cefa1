"""`memwal load`: files of rows into a table."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from enum import StrEnum
from typing import Annotated

import pyarrow as pa
import typer

from exec_nodes.arrow.struct_fields import missing_fields, type_differences
from memwal_sql.cli.files import FILL, FileFormat, FileRows, batches_of
from memwal_sql.cli.options import (
    ERROR_DETAILS,
    Output,
    OutputOption,
    StorageOptions,
    Uri,
    opened,
    storage_options,
)
from memwal_sql.cli.output import remark, show_result
from memwal_sql.create import create_table, is_table
from memwal_sql.errors import InvalidCallError
from memwal_sql.table import Table
from memwal_sql.view.texts import count_text
from memwal_sql.write.ingest.missing import ERROR, NULL, missing_columns
from planner.regions.text import spec_of


class Missing(StrEnum):
    """What becomes of columns of the table that a file lacks."""

    ERROR = ERROR
    NULL = NULL


def load(
    context: typer.Context,
    uri: Uri,
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Files of rows; - is standard input.")
    ],
    form: Annotated[
        FileFormat | None,
        typer.Option("--format", help="What the files are; by default what their names say."),
    ] = None,
    primary_key: Annotated[
        list[str] | None,
        typer.Option(
            "--primary-key",
            help="Make the table, with the columns of the first file and this column as its key; "
            "may be repeated.",
        ),
    ] = None,
    region: Annotated[
        list[str] | None,
        typer.Option(
            "--region-by", help="For a new table: such as 'bucket(id, 16)'; may be repeated."
        ),
    ] = None,
    missing: Annotated[
        Missing,
        typer.Option(
            help="Columns and fields of structs that rows lack are an error, or null in these rows."
        ),
    ] = Missing.ERROR,
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Upsert the rows of Parquet, Arrow, CSV and JSON files, durable batch by batch."""
    regions = ", ".join(region) if region else None
    if regions is not None and spec_of(regions, 1).is_manual:
        raise InvalidCallError(
            "--region-by manual: nothing says which region a row of a file belongs to; give "
            "functions of key columns, such as 'bucket(id, 8)', or leave it out"
        )
    with ExitStack() as stack:
        first: FileRows | None = None
        if primary_key:
            if is_table(uri, storage_options(options)):
                raise InvalidCallError(f"{uri} is a table already: load it without --primary-key")
            reading = batches_of(files[0], form, None, fill=missing is Missing.NULL)
            first = stack.enter_context(reading)
            table = create_table(
                uri,
                first[0],
                primary_key=primary_key,
                regions=regions,
                storage_options=storage_options(options),
            )
        elif region:
            raise InvalidCallError("--region-by is for a new table: name its --primary-key, too")
        else:
            table = opened(uri, options)
        stack.enter_context(table)
        stops_at = context if output is Output.JSON else None
        rows = _loaded(table, files, form, missing, first, stops_at)
    show_result({"rows": rows}, f"{count_text(rows, 'row')} loaded", output)


def _loaded(
    table: Table,
    files: list[str],
    form: FileFormat | None,
    missing: Missing,
    first: FileRows | None,
    context: typer.Context | None,
) -> int:
    """How many rows were written; where it stops goes to `context`, or to people if it is None.
    `first` are the rows of the first file, where they are being read already."""
    rows = 0
    file = files[0]
    fill = missing is Missing.NULL
    try:
        with table.writer() as writer:
            for number, file in enumerate(files):
                reading: AbstractContextManager[FileRows]
                reading = batches_of(file, form, table.schema, fill=fill)
                if first is not None and number == 0:
                    reading = nullcontext(first)
                with reading as (found, batches):
                    if not fill:
                        _check_columns(file, found, table.schema)
                    for batch in batches:
                        writer.upsert(batch, missing=NULL if fill else ERROR)
                        rows += batch.num_rows
    except Exception:
        if context is not None:
            context.meta[ERROR_DETAILS] = {"file": file, "rows_written": rows}
        elif rows:
            written = count_text(rows, "row")
            remark(f"stopped in {file}: {written} written before, which loading again repeats")
        raise
    return rows


def _check_columns(file: str, found: pa.Schema, schema: pa.Schema) -> None:
    """The error of a writer, in the words of the command line."""
    left_out = [field for field in schema if field.name not in found.names]
    if left_out and all(field.nullable for field in left_out):  # else the writer says which
        names = [field.name for field in left_out]
        raise missing_columns(f"{file} lacks", names, FILL)
    there = (field for field in schema if field.name in found.names)
    fields = [
        path
        for field in there
        for path in type_differences(found.field(field.name).type, field.type, field.name).lacking
    ]
    if fields:
        raise missing_fields(f"{file} lacks", fields, FILL)
