"""CREATE TABLE and CREATE EXTERNAL TABLE, which create or open tables.

CREATE TABLE t (id BIGINT PRIMARY KEY, city TEXT) PARTITIONED BY (bucket(id, 16)) LOCATION '...'
CREATE TABLE t (PRIMARY KEY (id)) LOCATION '...' AS SELECT ...
CREATE EXTERNAL TABLE t STORED AS MEMWAL LOCATION '...'
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import datafusion
import pyarrow as pa

from memwal_native.syntax import CreateTable, Named, Part
from memwal_sql.create import create_table, find_table, is_table, made_or_found, open_table
from memwal_sql.drop import drop_table
from memwal_sql.errors import InvalidCallError, MemWalError, UnsupportedError
from memwal_sql.registration import mount
from memwal_sql.session.clauses import check_names_differ
from memwal_sql.session.registered import NAME_PARTS, whole_name
from memwal_sql.session.session import session_of
from memwal_sql.session.table_options import FORMAT, options_of
from memwal_sql.state.schema import stored_type
from memwal_sql.statements.definitions.columns import Columns, columns_of
from memwal_sql.statements.definitions.names import (
    check_place,
    is_known,
    refuse_schema,
    written,
)
from memwal_sql.statements.queries.parsed import Statement
from memwal_sql.statements.queries.planning import answer, check_names, planning_errors
from memwal_sql.statements.queries.query_frames import query_frame
from memwal_sql.table import Table

_PREFIX = f"{FORMAT.lower()}."


def run_create_table(
    ctx: datafusion.SessionContext,
    statement: Statement,
    tree: CreateTable,
    parameters: Mapping[str, Any],
) -> datafusion.DataFrame | None:
    """Run CREATE [EXTERNAL] TABLE for a MemWAL table; None for a table of DataFusion.

    A MemWAL table is one in a catalog of this package, or one whose statement says USING memwal,
    STORED AS MEMWAL or, unless it is external, LOCATION.
    """
    name = tree.name
    parts = tuple(name.parts)
    session = session_of(ctx)
    folder = session.folder(whole_name(parts)) if len(parts) <= NAME_PARTS else None
    if len(parts) == NAME_PARTS:
        refuse_schema(ctx, statement, parts[:-1], name.start, kept=True)
    if folder is None and not tree.is_ours:
        if tree.key_start is not None and not tree.is_external:
            raise statement.unsupported(
                "a table with a primary key needs a place: add LOCATION 'folder', or create it "
                "in a catalog of mw.catalog; ctx.sql creates tables in memory",
                tree.key_start,
            )
        return None
    check_names(ctx)
    if tree.error is not None:
        raise statement.error(*tree.error)
    if tree.replaces:
        raise UnsupportedError("OR REPLACE would delete the table: run DROP TABLE first")
    check_place(ctx, statement, name)
    if is_known(ctx, parts) and (
        folder is None or is_table(folder.location(parts[-1]), folder.storage_options)
    ):
        if tree.lenient:
            return answer(ctx, pa.table({}))
        raise statement.error("the session has a table of this name", name.start)
    location = None if tree.location is None else _text(statement, tree.location, parameters)
    if folder is not None:
        if location is not None:
            raise InvalidCallError("tables of a catalog are in its folder: leave LOCATION out")
        location = folder.location(parts[-1])
    if location is None:
        message = "LOCATION 'folder' is missing"
        raise statement.error(message, statement.sql.part.end)
    regions, options = _options(statement, tree, parameters)
    opening, registering = options_of(options)
    if folder is not None:
        if options:
            raise InvalidCallError(
                f"a table of a catalog takes no options: remove {sorted(options)}"
            )
        opening["storage_options"] = folder.storage_options
    if tree.columns or tree.query is not None:
        table, count = _made(ctx, statement, tree, parameters, location, regions, opening)
    else:
        if not tree.is_external:
            message = "columns in parentheses, or AS and a query, are missing"
            raise statement.error(message, tree.columns_start)
        if regions is not None:
            raise InvalidCallError("an existing table has its regions: leave them out")
        table, count = open_table(location, **opening), None
    if folder is None:
        mount(ctx, written(parts), table, **registering)
    counts = {} if count is None else {"count": pa.array([count], pa.uint64())}
    return answer(ctx, pa.table(counts))


def _made(
    ctx: datafusion.SessionContext,
    statement: Statement,
    tree: CreateTable,
    parameters: Mapping[str, Any],
    location: str,
    regions: str | None,
    opening: Mapping[str, Any],
) -> tuple[Table, int | None]:
    """The table, created or found, and the number of rows it got from a query."""
    if pinned := sorted(set(opening) - {"storage_options"}):
        raise InvalidCallError(f"{pinned} are for existing tables: leave the columns out")
    options = opening.get("storage_options")
    columns = columns_of(statement, tree.columns)
    if not columns.primary_key:
        message = "PRIMARY KEY (columns) is missing"
        raise statement.error(message, tree.columns_start)
    find = partial(find_table, location, columns.schema, columns.primary_key, regions, options)
    opens = tree.lenient or (tree.is_external and tree.query is None)
    if opens and (table := find()) is not None:
        return table, None
    if not opens and is_table(location, options):
        raise InvalidCallError(
            f"{location} is a table already: IF NOT EXISTS opens it, and DROP TABLE then deletes it"
        )
    rows: pa.Table | None = None
    if tree.query is not None:
        rows = _rows(ctx, statement, tree.query, parameters, columns.schema)
        columns = Columns(_schema(rows.schema, columns.schema), columns.primary_key)
    make = partial(create_table, location, columns.schema, columns.primary_key, regions, options)
    table, is_new = made_or_found(make, find) if opens else (make(), True)
    return table, _filled(table, rows, options) if is_new and rows is not None else None


def _options(
    statement: Statement, tree: CreateTable, parameters: Mapping[str, Any]
) -> tuple[str | None, dict[str, str]]:
    """The regions, and all other options."""
    options: dict[str, str] = {}
    for name, value, at in tree.options:
        key = name.lower().removeprefix(_PREFIX)
        if key in options:
            raise statement.error("this option is given twice", at)
        options[key] = _text(statement, value, parameters)
    option = options.pop("regions", None)
    if option is not None and tree.regions is not None:
        raise InvalidCallError("give the regions by PARTITIONED BY or as an option, not both")
    return tree.regions if option is None else option, options


def _text(statement: Statement, literal: tuple[str, bool], parameters: Mapping[str, Any]) -> str:
    """A quoted text, or the value of a parameter."""
    text, is_parameter = literal
    if not is_parameter:
        return text
    if text[1:] not in parameters:
        raise statement.error(f"{text} has no value", statement.sql.part.start)
    return str(parameters[text[1:]])


def refuse_view(ctx: datafusion.SessionContext, statement: Statement, named: Named) -> None:
    """Raise UnsupportedError, with the place, for a view or a schema in a catalog of folders."""
    parts, at = tuple(named.name.parts), named.name.start
    if named.kind == "SCHEMA":
        refuse_schema(ctx, statement, parts, at, kept=True)
    is_whole = named.kind == "VIEW" and len(parts) == NAME_PARTS
    if is_whole and session_of(ctx).folder(whole_name(parts)) is not None:
        message = "a catalog of a folder has no views: create it in the session, by a name alone"
        raise statement.unsupported(message, at)


def _rows(
    ctx: datafusion.SessionContext,
    statement: Statement,
    query: Part,
    parameters: Mapping[str, Any],
    columns: pa.Schema,
) -> pa.Table:
    """The rows of the AS query, under the given column names."""
    result = query_frame(ctx, statement.source.since(query.start), parameters)
    with planning_errors():
        rows = result.to_arrow_table()
    if columns.names:
        if len(columns) != rows.num_columns:
            message = f"the query has {rows.num_columns} columns for {len(columns)}"
            raise statement.error(message, query.start)
        rows = rows.rename_columns(columns.names)
    check_names_differ(rows.schema.names)
    return rows


def _schema(computed: pa.Schema, columns: pa.Schema) -> pa.Schema:
    """The given columns, or those of the query, all nullable: a literal or a count without NULL
    says nothing about later rows."""
    if columns.names:
        return columns
    return pa.schema([pa.field(f.name, stored_type(f.type), metadata=f.metadata) for f in computed])


def _filled(table: Table, rows: pa.Table, options: Mapping[str, str] | None) -> int:
    """Write the first rows of a table; on failure the table is deleted again, if the store allows
    it."""
    try:
        with table.writer() as writer:
            return int(writer.insert(rows).rows)
    except BaseException as error:
        try:
            table.close()
            drop_table(table.uri, options)
        except MemWalError as failure:
            error.add_note(f"{table.uri} was left, with or without rows: drop it ({failure})")
        raise
