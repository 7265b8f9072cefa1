"""CREATE TABLE and CREATE EXTERNAL TABLE: tables that are made, or opened.

CREATE TABLE t (id BIGINT PRIMARY KEY, city TEXT) PARTITIONED BY (bucket(id, 16)) LOCATION '...'
CREATE TABLE t (PRIMARY KEY (id)) LOCATION '...' AS SELECT ...
CREATE EXTERNAL TABLE t STORED AS MEMWAL LOCATION '...'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import datafusion
import pyarrow as pa

from memwal_sql.create import create_table, is_table, open_table
from memwal_sql.drop import drop_table
from memwal_sql.errors import ConflictError, InvalidCallError, MemWalError, UnsupportedError
from memwal_sql.session.clauses import check_names_differ
from memwal_sql.session.register import register
from memwal_sql.session.table_functions import NAME_PARTS, search_functions, whole_name
from memwal_sql.session.table_options import options_of
from memwal_sql.state.enable import region_spec
from memwal_sql.state.schema import stored_type
from memwal_sql.statements.definitions.clauses import Clauses, are_ours, clauses_of
from memwal_sql.statements.definitions.columns import Columns, columns_of
from memwal_sql.statements.definitions.names import (
    check_place,
    if_exists,
    is_known,
    refuse_schema,
    written,
)
from memwal_sql.statements.queries.one_snapshot import frame
from memwal_sql.statements.queries.planning import answer, check_names, planning_errors
from memwal_sql.statements.queries.tokens import Statement
from memwal_sql.storage.retries import with_retries
from memwal_sql.table import Table
from memwal_sql.write.router import active_spec
from planner.regions.text import text_of


def created(
    ctx: datafusion.SessionContext, statement: Statement, parameters: Mapping[str, Any]
) -> datafusion.DataFrame | None:
    """Run CREATE [EXTERNAL] TABLE of a table of ours; None for one of DataFusion's.

    It is ours where it says USING memwal, STORED AS MEMWAL or, but for external tables, LOCATION,
    and in a catalog of ours.
    """
    replaces, place = if_exists(statement, 1, "OR REPLACE")
    external, place = if_exists(statement, place, "EXTERNAL")
    if statement.keyword(place) == "SCHEMA":
        _, place = if_exists(statement, place + 1, "IF NOT EXISTS")
        refuse_schema(ctx, statement, place, statement.table(place)[0], kept=True)
    if statement.keyword(place) == "VIEW":
        _refuse_view(ctx, statement, place)
    if statement.keyword(place) != "TABLE":
        return None
    lenient, place = if_exists(statement, place + 1, "IF NOT EXISTS")
    at = place
    parts, place = statement.table(place)
    columns_at, place = place, statement.closing(place) if statement.symbol(place) == "(" else place
    functions = search_functions(ctx)
    folder = functions.folder(whole_name(parts)) if len(parts) <= NAME_PARTS else None
    if len(parts) == NAME_PARTS:
        refuse_schema(ctx, statement, at, parts[:-1], kept=True)
    if folder is None and not are_ours(statement, place, external=external):
        keys = (at for at in range(columns_at, place) if statement.has(at, "PRIMARY KEY"))
        keyed = None if external else next(keys, None)
        if keyed is not None:
            raise UnsupportedError(
                str(
                    statement.error(
                        "a table with a primary key needs a place: LOCATION 'folder', or a name in "
                        "a catalog that mw.catalog has made; ctx.sql makes tables in memory",
                        keyed,
                    )
                )
            )
        return None
    check_names(ctx)
    listed = statement.split(columns_at + 1, place - 1)
    clauses = clauses_of(statement, place, parameters)
    if clauses.unknown is not None:
        raise statement.error("a MemWAL table has no such clause", clauses.unknown)
    if replaces:
        raise UnsupportedError("OR REPLACE would delete a table: DROP TABLE does, before")
    check_place(ctx, statement, at, parts)
    if is_known(ctx, parts) and (
        folder is None or is_table(folder.location(parts[-1]), folder.storage_options)
    ):
        if lenient:
            return answer(ctx, pa.table({}))
        raise statement.error("the session has a table of this name", at)
    if folder is not None and clauses.location is not None:
        raise InvalidCallError("the tables of a catalog are in its folder: leave LOCATION out")
    location = clauses.location if folder is None else folder.location(parts[-1])
    if location is None:
        raise statement.error("LOCATION 'folder' must say where the table is", len(statement))
    regions = _regions(clauses)
    opening, registering = options_of(clauses.options)
    if folder is not None:
        if clauses.options:
            raise InvalidCallError(f"a table of a catalog has no options {sorted(clauses.options)}")
        opening["storage_options"] = folder.storage_options
    count: int | None = None
    if not listed and clauses.query is None:
        if not external:
            raise statement.error("columns in parentheses, or AS and a query, are missing", place)
        if regions is not None:
            raise InvalidCallError("a table that is opened has its regions: leave them out")
        table = open_table(location, **opening)
    else:
        if pinned := sorted(set(opening) - {"storage_options"}):
            raise InvalidCallError(f"{pinned} are for tables that are there: leave columns out")
        options = opening.get("storage_options")
        columns = columns_of(statement, listed)
        if not columns.primary_key:
            message = "PRIMARY KEY (columns) must say what rows are found by"
            raise statement.error(message, columns_at)
        find = partial(_found, location, options, columns, regions)
        opens = lenient or (external and clauses.query is None)
        found = find() if opens else None
        if not opens and is_table(location, options):
            raise InvalidCallError(
                f"{location} is a table already: IF NOT EXISTS opens it as it is, and DROP TABLE "
                "deletes it then"
            )
        if found is not None:
            table = found
        else:
            rows: pa.Table | None = None
            if clauses.query is not None:
                rows = _rows(ctx, statement, clauses.query, parameters, columns.schema)
                columns = Columns(_schema(rows.schema, columns.schema), columns.primary_key)
            primary_key = columns.primary_key
            make = partial(create_table, location, columns.schema, primary_key, regions, options)
            table, made = _made_or_found(make, find) if opens else (make(), True)
            if made and rows is not None:
                count = _filled(table, rows, options)
    if folder is None:
        register(ctx, written(parts), table, **registering)
    counts = {} if count is None else {"count": pa.array([count], pa.uint64())}
    return answer(ctx, pa.table(counts))


def _found(
    location: str, options: Mapping[str, str] | None, columns: Columns, regions: str | None
) -> Table | None:
    """The table that is there, None where none is. Raises InvalidCallError unless it is the one
    that is described."""
    if not is_table(location, options):
        return None
    return _as_wanted(open_table(location, storage_options=options), columns, regions)


def _made_or_found(
    make: Callable[[], Table], find: Callable[[], Table | None]
) -> tuple[Table, bool]:
    """A table that was not there, and whether it was made here: somebody else may make it at the
    same time."""

    def once() -> tuple[Table, bool]:
        try:
            return make(), True
        except (ConflictError, InvalidCallError):
            found = find()
            if found is None:
                raise
            return found, False

    return with_retries(once, "CREATE TABLE", on=ConflictError)


def _refuse_view(ctx: datafusion.SessionContext, statement: Statement, place: int) -> None:
    """Raise UnsupportedError, with the place, for a view in a catalog of folders."""
    _, place = if_exists(statement, place + 1, "IF NOT EXISTS")
    parts, _ = statement.table(place)
    if len(parts) == NAME_PARTS and search_functions(ctx).folder(whole_name(parts)) is not None:
        message = "a catalog of a folder keeps no views: make it in the session, by a name alone"
        raise UnsupportedError(str(statement.error(message, place)))


def _regions(clauses: Clauses) -> str | None:
    given = clauses.options.pop("regions", None)
    if given is not None and clauses.regions is not None:
        raise InvalidCallError("give the regions by PARTITIONED BY or as an option, not both")
    return clauses.regions if given is None else given


def _rows(
    ctx: datafusion.SessionContext,
    statement: Statement,
    place: int,
    parameters: Mapping[str, Any],
    columns: pa.Schema,
) -> pa.Table:
    """The rows of AS, under the names that the columns are given."""
    found = frame(ctx, statement.slice(place, len(statement)), parameters)
    with planning_errors():
        rows = found.to_arrow_table()
    if columns.names:
        if len(columns) != rows.num_columns:
            raise statement.error(
                f"the query has {rows.num_columns} columns for {len(columns)}", place
            )
        rows = rows.rename_columns(columns.names)
    check_names_differ(rows.schema.names)
    return rows


def _schema(computed: pa.Schema, given: pa.Schema) -> pa.Schema:
    """The columns that are given, or those of the query, which may all become NULL: that a literal
    or a count is none says nothing of later rows."""
    if given.names:
        return given
    return pa.schema([pa.field(f.name, stored_type(f.type), metadata=f.metadata) for f in computed])


def _filled(table: Table, rows: pa.Table, options: Mapping[str, str] | None) -> int:
    """Write the first rows of a table; where that fails there is no table again, if the store lets
    go of it."""
    try:
        with table.writer() as writer:
            return int(writer.insert(rows).rows)
    except BaseException as error:
        try:
            table.close()
            drop_table(table.uri, options)
        except MemWalError as left:
            error.add_note(f"{table.uri} is left, without rows or with some: drop it ({left})")
        raise


def _as_wanted(table: Table, columns: Columns, regions: str | None) -> Table:
    """The table that is there. Raises InvalidCallError unless it is the one that is described; its
    columns may be left to a query, and are any then."""
    info = table.info
    keys = set(columns.primary_key)
    wanted = pa.schema([f.with_nullable(False) if f.name in keys else f for f in columns.schema])
    same = not wanted.names or table.schema.equals(wanted)
    same = same and table.primary_key == columns.primary_key
    if same and regions is not None:
        spec = active_spec(info)
        asked = region_spec(regions, table.schema, table.primary_key)
        same = text_of(asked) == ("manual" if spec is None else text_of(spec))
    if not same:
        shown = ", ".join(f"{field.name} {field.type}" for field in table.schema)
        raise InvalidCallError(
            f"{table.uri} is there, and another one: it has the columns {shown}, the primary key "
            f"{list(table.primary_key)} and its own regions; leave the columns out to open it"
        )
    return table
