"""`memwal load`: files of rows into a table."""

from __future__ import annotations

from contextlib import ExitStack
from enum import StrEnum
from typing import Annotated

import typer

from exec_nodes.arrow.struct_fields import FILL_OPTION
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
from memwal_sql.view.texts import count_text
from memwal_sql.write.ingest.files import FileFormat, batches_of, format_of
from memwal_sql.write.ingest.missing import ERROR, NULL, MissingInInsert
from memwal_sql.write.table_writer import TableWriter
from planner.regions.text import spec_of

# The option by which rows may lack columns, which become null.
_FILL = "--missing null"


class Missing(StrEnum):
    """Columns of the table that a file lacks: refused, or null."""

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
    if region and not primary_key:
        raise InvalidCallError("--region-by is for a new table: name its --primary-key, too")
    if primary_key and is_table(uri, storage_options(options)):
        raise InvalidCallError(f"{uri} is a table already: load it without --primary-key")
    table = None if primary_key else opened(uri, options)
    writer: TableWriter | None = None
    rows, file = 0, files[0]
    absent: MissingInInsert = NULL if missing is Missing.NULL else ERROR
    with ExitStack() as stack:
        try:
            for file in files:
                schema = None if table is None else table.schema
                kind = form or format_of(file)
                if kind is None:
                    raise InvalidCallError(
                        f"its name says no format: add --format, one of {[*map(str, FileFormat)]}"
                    )
                with batches_of(file, kind, schema, missing=absent) as (columns, batches):
                    if table is None:
                        table = create_table(
                            uri,
                            columns,
                            primary_key=primary_key or (),
                            regions=regions,
                            storage_options=storage_options(options),
                        )
                    if writer is None:
                        writer = stack.enter_context(table.writer())
                    for batch in batches:
                        writer.upsert(batch, missing=absent)
                        rows += batch.num_rows
            stack.close()
        except Exception as error:
            if output is Output.JSON:
                context.meta[ERROR_DETAILS] = {"file": file, "rows_written": rows}
            elif rows:
                written = count_text(rows, "row")
                remark(f"stopped in {file}: {written} written before, which loading again repeats")
            if type(error) is not InvalidCallError:
                raise
            # A writer's remedies, in the words of the command line.
            message = str(error).replace(FILL_OPTION, _FILL)
            raise InvalidCallError(f"{file}: {message}") from None
    show_result({"rows": rows}, f"{count_text(rows, 'row')} loaded", output)
