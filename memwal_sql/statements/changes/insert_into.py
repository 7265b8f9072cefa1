"""INSERT and REPLACE as they are written."""

from __future__ import annotations

import datafusion

from memwal_sql.arguments import quoted
from memwal_sql.errors import UnsupportedError
from memwal_sql.statements.changes.acts import UPDATE
from memwal_sql.statements.changes.change import Change
from memwal_sql.statements.changes.insert import (
    GIVEN,
    GivenRows,
    InsertOver,
    Overwrite,
    Upsert,
    excluded,
    excluded_name,
)
from memwal_sql.statements.changes.merge import MATCHED, When
from memwal_sql.statements.changes.returning import Returning, returning_at
from memwal_sql.statements.changes.target import Target, columns_at, target_at
from memwal_sql.statements.changes.update import QUERIES, assignments
from memwal_sql.statements.changes.values import given_rows
from memwal_sql.statements.queries.places import Edit
from memwal_sql.statements.queries.tokens import Statement

_CLAUSES = (*QUERIES, "BY", "ON", "RETURNING", "DEFAULT", "PARTITION")
_EXCLUDED = "excluded"


def insert(
    ctx: datafusion.SessionContext, statement: Statement, ctes: Statement | None
) -> Change | None:
    """`INSERT [INTO] | INSERT OVERWRITE | REPLACE INTO t [(columns)] [BY NAME] query
    [ON CONFLICT ...] [RETURNING ...]`, if it is about a table of ours.

    Raises InvalidCallError and UnsupportedError, with the place, for what it can't be.
    """
    overwrites = statement.keyword(1) == "OVERWRITE"
    first = 2 if overwrites else 1
    into = first if overwrites else statement.find("INTO")
    place = into + 1 if statement.keyword(into) == "INTO" else first
    place += statement.keyword(place) == "TABLE"
    if place >= len(statement):
        return None
    found = target_at(ctx, statement, place, ctes, _CLAUSES)
    if found is None:
        return None
    if first < into < place:  # OR IGNORE, IGNORE and their like, which say what becomes of old rows
        raise UnsupportedError(
            str(statement.error("say REPLACE INTO, or ON CONFLICT DO NOTHING", first))
        )
    target, start = found
    returning, end = returning_at(statement, start, target)
    duplicate = statement.find("ON DUPLICATE KEY", start, end)
    if duplicate < end:
        message = "say ON CONFLICT DO UPDATE SET column = excluded.column"
        raise UnsupportedError(str(statement.error(message, duplicate)))
    conflict = _conflict(statement, start, end)
    columns: list[str] | None = target.columns.names
    is_nested = statement.keyword(start + 1) in QUERIES or statement.symbol(start + 1) == "("
    if statement.symbol(start) == "(" and not is_nested:
        columns, start = columns_at(statement, start, target)
    elif statement.has(start, "BY NAME"):
        columns, start = None, start + 2
    is_query = statement.keyword(start) in QUERIES or statement.symbol(start) == "("
    if start == conflict or not is_query:
        raise statement.error("VALUES or a query must stand here", start)
    given = given_rows(target, statement, start, conflict, columns)
    if conflict < end:
        if overwrites or statement.keyword(0) == "REPLACE":
            raise statement.error("no row is left that these could meet", conflict)
        return _over(statement, conflict, end, target, returning, given)
    if overwrites:
        return Overwrite(target, returning, given)
    is_whole = columns is not None and len(columns) == len(target.columns)
    if is_whole or statement.keyword(0) == "REPLACE":
        return Upsert(target, returning, given)
    return InsertOver(target, returning, given, keep="last", matched=None)


def with_excluded(statement: Statement) -> Statement:
    """The statement with the columns of the rows given for `excluded.column`."""
    start = statement.find("DO UPDATE SET", _conflict(statement, 0, len(statement)))
    edits = []
    for place in range(start, statement.find("RETURNING", start)):
        token, after = statement.tokens[place], place + 2
        if _is_excluded(statement, place) and after < len(statement):
            column = statement.tokens[after]
            if statement.symbol(place + 1) == "." and column.is_name:
                table, name = map(quoted, excluded_name(column.name))
                edits += [
                    Edit(token.start, token.end, table),
                    Edit(column.start, column.end, name),
                ]
    return statement.edited(edits) if edits else statement


def _is_excluded(statement: Statement, place: int) -> bool:
    token = statement.tokens[place]
    return token.is_name and token.name == _EXCLUDED and statement.symbol(place - 1) != "."


def _conflict(statement: Statement, start: int, end: int) -> int:
    """The place of the last ON CONFLICT, or the end."""
    places = [p for p in statement.top(start, end) if statement.has(p, "ON CONFLICT")]
    follows = ("DO", "ON", "WHERE")
    if places and (
        statement.symbol(places[-1] + 2) == "(" or statement.keyword(places[-1] + 2) in follows
    ):
        return places[-1]
    return end


def _over(
    statement: Statement,
    place: int,
    end: int,
    target: Target,
    returning: Returning | None,
    given: GivenRows,
) -> InsertOver:
    """`ON CONFLICT [(key)] DO NOTHING | DO UPDATE SET ... [WHERE condition]`."""
    key = target.table.primary_key
    place += 2
    if statement.symbol(place) == "(":
        names, after = columns_at(statement, place, target)
        if set(names) != set(key):
            raise statement.error(f"rows meet by the primary key {list(key)} only", place)
        place = after
    if statement.has(place, "DO NOTHING"):
        if place + 2 < end:
            raise statement.error("the statement must end here", place + 2)
        nothing = When(MATCHED, "", "")
        return InsertOver(target, returning, given, keep="first", matched=nothing)
    place = statement.expect(place, "DO UPDATE SET")
    _check_excluded(statement, place, end, given)
    where = statement.find("WHERE", place, end)
    values = assignments(statement, place, where, target, GIVEN)
    values = {n: text for n, text in values.items() if n not in key or text != excluded(n)}
    condition = f"({statement.slice(where + 1, end)})" if where < end else ""
    update = When(MATCHED, condition, UPDATE, values)
    return InsertOver(target, returning, given, keep=None, matched=update)


def _check_excluded(statement: Statement, start: int, stop: int, given: GivenRows) -> None:
    """Raise InvalidCallError, with the place, for a column that the rows given have not, and for
    `excluded` as anything else."""
    columns = given.target.columns.names
    known = columns if given.columns is None else list(given.columns)
    for place in range(start, stop):
        token = statement.tokens[place]
        if _is_excluded(statement, place) and _EXCLUDED not in columns:
            raise statement.error("excluded.column is what the row given has in a column", place)
        if token.is_name and quoted(token.name) == GIVEN:
            column = statement.tokens[place + 2]
            if column.name not in {excluded_name(name)[1] for name in known}:
                raise statement.error(
                    f"the rows given have {known}, and not this column", place + 2
                )
