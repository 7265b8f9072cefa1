"""ALTER TABLE: the columns of a table.

ALTER TABLE t ADD COLUMN [IF NOT EXISTS] n BIGINT, DROP COLUMN [IF EXISTS] m
ALTER TABLE t RENAME COLUMN n TO m
ALTER TABLE t ALTER COLUMN n DROP NOT NULL
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import datafusion
import pyarrow as pa

from memwal_sql.errors import InvalidCallError, MemWalError, UnsupportedError
from memwal_sql.life_log import life_log
from memwal_sql.session.register import register
from memwal_sql.session.table_functions import Registered, search_functions, whole_name
from memwal_sql.state.schema import check_schema
from memwal_sql.statements.definitions.columns import columns_of
from memwal_sql.statements.definitions.names import (
    if_exists,
    is_known,
    not_ours,
    registered,
    table_of,
)
from memwal_sql.statements.queries.planning import answer
from memwal_sql.statements.queries.tokens import Statement
from memwal_sql.table import Table

_log = life_log(__name__)

Change = Callable[[], None]
# What else than columns other databases drop.
_CONSTRAINTS = ("CONSTRAINT", "PRIMARY", "PARTITION", "FOREIGN", "INDEX")


def altered(
    ctx: datafusion.SessionContext, statement: Statement, _: Mapping[str, Any]
) -> datafusion.DataFrame | None:
    """Run ALTER TABLE; None for ALTER of something else. All of its changes are checked before the
    first is made."""
    if statement.keyword(1) != "TABLE":
        return None
    lenient, at = if_exists(statement, 2)
    parts, place = statement.table(at)
    found = registered(ctx, parts)
    if found is None:
        if lenient and not is_known(ctx, parts):
            return answer(ctx, pa.table({}))
        raise not_ours(ctx, statement, at, place)
    table = table_of(found)
    table.refresh()
    changes, columns = [], table.schema
    for first, last in statement.split(place, len(statement)):
        change, columns = _change(statement, table, columns, first, last)
        check_schema(columns, table.primary_key)
        changes.append(change)
    if not changes:
        raise statement.error("a change must follow the table", place)
    try:
        for change in changes:
            change()
    finally:  # those before one that fails are made
        if search_functions(ctx).folder(whole_name(parts)) is None:  # which opens tables anew
            _register_anew(ctx, found, table)
    return answer(ctx, pa.table({}))


def _register_anew(ctx: datafusion.SessionContext, found: Registered, table: Table) -> None:
    """Give the session the columns of now. Whether it has them changes nothing of the table."""
    name, level, missing = found.name, found.consistency, found.missing
    try:
        register(ctx, name, table, level, missing=missing, approximate=found.approximate)
    except MemWalError as error:
        kind = type(error).__name__
        _log.warning("%s has other columns, register it again: %s", table.uri, kind)


def _change(
    statement: Statement, table: Table, columns: pa.Schema, first: int, last: int
) -> tuple[Change, pa.Schema]:
    """A change of a table that has these columns by then, and the columns that it has afterwards.

    Raises InvalidCallError and UnsupportedError, with the place, for what can't be.
    """
    word = statement.keyword(first)
    place = first + (2 if statement.keyword(first + 1) in ("COLUMN", "COLUMNS") else 1)
    if word == "ADD":
        return _add(statement, table, columns, place, last)
    if word == "DROP" and statement.keyword(place) not in _CONSTRAINTS:
        lenient, place = if_exists(statement, place)
        name = _column(statement, place, last, last)
        if lenient and name not in columns.names:
            return lambda: None, columns
        index = _index(statement, table, columns, place)
        return lambda: table.drop_columns([name]), columns.remove(index)
    if word == "RENAME" and statement.keyword(first + 1) == "TO":
        raise UnsupportedError("the name of a table is that of its folder: move the folder")
    if word == "RENAME":
        old = _column(statement, place, last)
        index = _index(statement, table, columns, place)
        after = statement.expect(place + 1, "TO")
        new = _column(statement, after, last, last)
        renamed = columns.set(index, columns.field(index).with_name(new))
        return lambda: table.rename_column(old, new), renamed
    if word == "ALTER":
        name = _column(statement, place, last)
        index = _index(statement, table, columns, place)
        if statement.has(place + 1, "DROP NOT NULL") and place + 4 == last:
            nullable = columns.set(index, columns.field(index).with_nullable(True))
            return lambda: table.set_nullable(name), nullable
        if statement.has(place + 1, "SET NOT NULL"):
            table.set_nullable(name, nullable=False)  # which says why not
        message = "DROP NOT NULL is the only change of a column"
        if "TYPE" in (statement.keyword(place + 1), statement.keyword(place + 3)):
            message = (
                "a column's type can't be changed: add a column, UPDATE it, and drop the old one"
            )
        raise UnsupportedError(str(statement.error(message, place + 1)))
    if word in ("SET", "UNSET"):
        message = (
            "a table keeps the regions and the key that it was made with, and has no other "
            "options: mw.register(ctx, name, table, consistency) and CREATE INDEX have theirs"
        )
        raise UnsupportedError(str(statement.error(message, first)))
    raise UnsupportedError(
        str(statement.error("ADD, DROP, RENAME or ALTER COLUMN must stand here", first))
    )


def _add(
    statement: Statement, table: Table, columns: pa.Schema, place: int, last: int
) -> tuple[Change, pa.Schema]:
    lenient, place = if_exists(statement, place, "IF NOT EXISTS")
    parts = [(place, last)]
    if statement.symbol(place) == "(":
        parts = statement.split(place + 1, statement.closing(place) - 1)
    found = columns_of(statement, parts)
    if found.primary_key:
        raise InvalidCallError("a primary key can't be added to a table")
    known = columns.names if lenient else ()
    fields = [field for field in found.schema if field.name not in known]
    if taken := [field.name for field in fields if field.name in columns.names]:
        raise statement.error(f"the table has columns {taken} already", place)
    if required := [field.name for field in fields if not field.nullable]:
        message = f"{required} are null in the rows that are there: make them nullable"
        raise statement.error(message, place)
    added = pa.schema([*columns, *fields])
    return (lambda: table.add_columns(fields)) if fields else lambda: None, added


def _index(statement: Statement, table: Table, columns: pa.Schema, place: int) -> int:
    """Which column is named at a place, that may be changed."""
    name = statement.tokens[place].name
    if name not in columns.names:
        raise statement.error(f"{columns.names} are the columns of the table", place)
    if name in table.primary_key:
        message = (
            f"{name!r} is of the primary key, by which rows are found and divided: make a new "
            "table, and write the rows into it"
        )
        raise statement.error(message, place)
    return int(columns.get_field_index(name))


def _column(statement: Statement, place: int, last: int, end: int | None = None) -> str:
    """The name of a column at a place; `end` is the place that must come after it."""
    if place >= last or not statement.tokens[place].is_name:
        raise statement.error("the name of a column must stand here", place)
    if end is not None and place + 1 != end:
        raise statement.error("nothing may follow the column", place + 1)
    return statement.tokens[place].name
