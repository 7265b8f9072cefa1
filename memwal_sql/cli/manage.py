"""Commands for the past of a table and for its definition: `versions`, `restore`, `tag`,
`create-index`, `drop-index`, `drop`."""

from __future__ import annotations

from typing import Annotated, Any

import pyarrow.compute as pc
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
    storage_options,
    version_of,
)
from memwal_sql.cli.output import show_result, show_rows
from memwal_sql.drop import drop_table
from memwal_sql.errors import InvalidCallError
from memwal_sql.index.create import default_name
from memwal_sql.index.kinds import IndexKind
from memwal_sql.view.texts import count_text


def versions(uri: Uri, options: StorageOptions = None, output: OutputOption = Output.TABLE) -> None:
    """List the versions of the base table: time, operation, rows, files, tags."""
    show_rows(opened(uri, options).history(), output)


def restore(
    uri: Uri,
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
    version: Version = None,
    timestamp: Timestamp = None,
    checkpoint: CheckpointName = None,
) -> None:
    """Give the table the rows of a past state; give one of version, timestamp, checkpoint."""
    with opened(uri, options) as table:
        rows = table.restore(version_of(version), timestamp=timestamp, checkpoint=checkpoint).rows
    show_result({"rows": rows}, f"{count_text(rows, 'row')} written or deleted", output)


def tag(
    uri: Uri,
    name: Annotated[str | None, typer.Argument(help="The tag; without it all are listed.")] = None,
    version: Annotated[
        int | None,
        typer.Option(
            "--version",
            help="The version that it names; by default what is flushed by now. `checkpoint` holds"
            " what is in the log, too.",
        ),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Let go of the name.")] = False,
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Name a version of the base table, which is then kept; list or delete names."""
    table = opened(uri, options)
    if name is None:
        if delete or version is not None:
            raise InvalidCallError("the NAME of the tag is missing")
        show_rows(table.snapshots().filter(pc.field("kind") == "tag"), output, "no tags")
        return
    if delete:
        if version is not None:
            raise InvalidCallError("--delete takes the NAME of a tag, and no --version")
        table.tags.delete(name)
        show_result({"deleted": name}, f"{name} is no tag any more", output)
        return
    named = table.tags.create(name, version)
    show_result({"name": name, "version": named}, f"{name} is version {named}", output)


def create_index(
    uri: Uri,
    column: Annotated[str, typer.Argument(help="The column.")],
    kind: Annotated[str, typer.Argument(help="IVF_PQ and the like, FTS, BTREE, BITMAP, ...")],
    name: Annotated[str | None, typer.Option(help="By default the column's, with _idx.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Rebuild the index of this name.")
    ] = False,
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--param", "-p", metavar="NAME=VALUE", help="As of table.create_index; JSON or text."
        ),
    ] = None,
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Build an index over a column; generations have it from now on."""
    values: Any = named_values("--param", parameters)
    if own := sorted({"column", "index_type", "name", "replace"} & values.keys()):
        raise InvalidCallError(f"--param {own[0]}: that is an argument or option of its own")
    index_kind: IndexKind = kind.upper()  # type: ignore[assignment]  # it is checked there
    table = opened(uri, options)
    table.create_index(column, index_kind, name=name, replace=replace, **values)
    made = name or default_name(column)
    show_result({"index": made}, f"built {made}", output)


def drop_index(
    uri: Uri,
    name: Annotated[str, typer.Argument(help="The index.")],
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove an index."""
    opened(uri, options).drop_index(name)
    show_result({"dropped": name}, f"dropped {name}", output)


def drop(
    uri: Uri,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete. Without it nothing is touched.")
    ] = False,
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete the table with all that is in its folder: rows, versions, checkpoints."""
    if not yes:
        raise InvalidCallError(f"{uri} would be deleted with all rows and versions: give --yes")
    drop_table(uri, storage_options(options))
    show_result({"dropped": uri}, f"dropped {uri}", output)
