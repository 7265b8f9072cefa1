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

from memwal_sql.errors import InvalidCallError, UnsupportedError
from memwal_sql.session.front.definitions.columns import columns_of
from memwal_sql.session.front.definitions.names import if_exists, registered, table_of, written
from memwal_sql.session.front.queries.planning import answer
from memwal_sql.session.front.queries.tokens import Statement
from memwal_sql.session.register import register
from memwal_sql.session.table_functions import search_functions, whole_name
from memwal_sql.table import Table

Change = Callable[[], None]


def altered(
    ctx: datafusion.SessionContext, statement: Statement, _: Mapping[str, Any]
) -> datafusion.DataFrame | None:
    """Run ALTER TABLE of a table of ours; None for another one. All of its changes are read before
    the first is made."""
    if statement.keyword(1) != "TABLE":
        return None
    lenient, at = if_exists(statement, 2)
    parts, place = statement.table(at)
    found = registered(ctx, parts)
    if found is None:
        if lenient and not ctx.table_exist(written(parts)):
            return answer(ctx, pa.table({}))
        return None
    table = table_of(found)
    table.refresh()
    changes = [
        _change(statement, table, first, last)
        for first, last in statement.split(place, len(statement))
    ]
    if not changes:
        raise statement.error("a change must follow the table", place)
    try:
        for change in changes:
            change()
    finally:  # those before one that fails are made
        if search_functions(ctx).folder(whole_name(parts)) is None:  # which opens tables anew
            register(
                ctx,
                found.name,
                table,
                found.consistency,
                missing=found.missing,
                approximate=found.approximate,
            )
    return answer(ctx, pa.table({}))


def _change(statement: Statement, table: Table, first: int, last: int) -> Change:
    word = statement.keyword(first)
    place = first + (2 if statement.keyword(first + 1) in ("COLUMN", "COLUMNS") else 1)
    if word == "ADD":
        return _add(statement, table, place, last)
    if word == "DROP" and place > first + 1:
        lenient, place = if_exists(statement, place)
        name = _column(statement, place, last, last)
        if lenient and name not in table.schema.names:
            return lambda: None
        return lambda: table.drop_columns([name])
    if word == "RENAME" and statement.keyword(first + 1) == "TO":
        raise UnsupportedError("the name of a table is that of its folder: move the folder")
    if word == "RENAME":
        old = _column(statement, place, last)
        after = statement.expect(place + 1, "TO")
        new = _column(statement, after, last, last)
        return lambda: table.rename_column(old, new)
    if word == "ALTER":
        name = _column(statement, place, last)
        if statement.has(place + 1, "DROP NOT NULL") and place + 4 == last:
            return lambda: table.set_nullable(name)
        if statement.has(place + 1, "SET NOT NULL"):
            return lambda: table.set_nullable(name, nullable=False)
        raise UnsupportedError(
            str(statement.error("of a column DROP NOT NULL alone can be changed", place + 1))
        )
    raise UnsupportedError(
        str(statement.error("ADD, DROP, RENAME or ALTER COLUMN must stand here", first))
    )


def _add(statement: Statement, table: Table, place: int, last: int) -> Change:
    lenient, place = if_exists(statement, place, "IF NOT EXISTS")
    parts = [(place, last)]
    if statement.symbol(place) == "(":
        parts = statement.split(place + 1, statement.closing(place) - 1)
    found = columns_of(statement, parts)
    if found.primary_key:
        raise InvalidCallError("a primary key can't be added to a table")
    known = table.schema.names if lenient else ()
    fields = [field for field in found.schema if field.name not in known]
    return (lambda: table.add_columns(fields)) if fields else lambda: None


def _column(statement: Statement, place: int, last: int, end: int | None = None) -> str:
    """The name of a column at a place; `end` is the place that must come after it."""
    if place >= last or not statement.tokens[place].is_name:
        raise statement.error("the name of a column must stand here", place)
    if end is not None and place + 1 != end:
        raise statement.error("nothing may follow the column", place + 1)
    return statement.tokens[place].name
