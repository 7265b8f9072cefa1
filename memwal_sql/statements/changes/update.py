"""UPDATE: new values of columns."""

from __future__ import annotations

from collections.abc import Mapping

import datafusion
import pyarrow as pa

from memwal_sql.arguments import quoted
from memwal_sql.errors import UnsupportedError
from memwal_sql.statements.changes.acts import UPDATE, Act
from memwal_sql.statements.changes.change import Change
from memwal_sql.statements.changes.delete import condition_at, other_tables
from memwal_sql.statements.changes.fitting import fitted_rows
from memwal_sql.statements.changes.reading import Reading
from memwal_sql.statements.changes.returning import Returning, returning_at
from memwal_sql.statements.changes.target import Target, refuse_others, target_at
from memwal_sql.statements.queries.places import Name
from memwal_sql.statements.queries.tokens import Statement

_CLAUSES = ("SET", "FROM", "WHERE", "RETURNING", "ORDER", "LIMIT")
# The words that a query begins with.
QUERIES = ("SELECT", "WITH", "VALUES", "FROM")


class Update(Change):
    """`UPDATE t [AS a] SET column = value, ... [FROM others] [WHERE condition] [RETURNING ...]`."""

    def __init__(
        self,
        target: Target,
        returning: Returning | None,
        values: Mapping[str, str],
        others: str,
        condition: str,
    ) -> None:
        """`values` are expressions by column, the rest clauses as they are written, as parts of a
        SELECT."""
        super().__init__(target, returning)
        self._values = values
        self._where = f"FROM {target.source}{others} {condition}"
        key = target.table.primary_key
        self.whole = bool(set(key) & set(values))

    @property
    def query(self) -> str:
        """Finds the new rows and, where key columns are set, the keys that they had."""
        target, values = self.target, self._values
        columns = [
            f"{values[name]} AS {quoted(name)}" if name in values else target.column(name)
            for name in target.columns.names
        ]
        if self.whole:
            key = target.table.primary_key
            columns += [f"{target.qualifier}.{quoted(n)} AS {quoted(_before(n))}" for n in key]
        return f"SELECT {', '.join(columns)} {self._where}"

    def acts(self, reading: Reading, keys: pa.Table | None) -> list[Act]:
        """Updates."""
        columns, key = self.target.columns, list(self.target.table.primary_key)
        found = reading.rows(self.query, keys)
        rows = fitted_rows(found.select(columns.names), columns)
        if not self.whole:
            return [Act(UPDATE, rows)]
        before = found.select(map(_before, key))
        return [Act(UPDATE, rows, before.rename_columns(key))]


def update(
    ctx: datafusion.SessionContext, statement: Statement, ctes: Statement | None
) -> Update | None:
    """The statement, if it is an UPDATE of a table of ours.

    Raises InvalidCallError and UnsupportedError, with the place, for what it can't be.
    """
    found = target_at(ctx, statement, 1, ctes, _CLAUSES)
    if found is None:
        return None
    target, start = found
    returning, stop = returning_at(statement, start, target)
    refuse_others(statement, start, "UPDATE")
    where = statement.find("WHERE", start, stop)
    start = statement.expect(start, "SET")
    end = statement.find("FROM", start, where)
    while statement.keyword(end - 1) == "DISTINCT":  # a IS DISTINCT FROM b
        end = statement.find("FROM", end + 1, where)
    others = other_tables(statement, end, where, "FROM")
    values = assignments(statement, start, end, target)
    return Update(target, returning, values, others, condition_at(statement, where, stop))


def assignments(
    statement: Statement, start: int, end: int, target: Target, source: str = ""
) -> dict[str, str]:
    """The expressions of `column = value, ...`, by column; those that are a column of `source`, a
    name in quotes, in one way however they are written.

    Raises InvalidCallError, with the place, for a column that is not the table's, or set twice.
    """
    values: dict[str, str] = {}
    for first, last in statement.split(start, end):
        if statement.symbol(first) == "(":
            raise statement.error("columns are set by column = value, one by one", first)
        column, after = target.place_of(statement, first)
        if column in values:
            raise statement.error("this column is set twice", first)
        if statement.symbol(after) != "=" or after + 1 >= last:
            raise statement.error("`= value` must follow the column", after)
        values[column] = source_column(statement, after + 1, last, source)
    if not values:
        raise statement.error("there is no column to set", start)
    return values


def source_column(statement: Statement, start: int, stop: int, source: str) -> str:
    """The expression that stands there, in parentheses; a column of the source always as
    `"s"."column"`. Raises UnsupportedError, with the place, for one of several rows."""
    column = lone_column(statement, start, stop)
    if len(column) == len(("s", "column")) and quoted(column[0]) == source:
        return f"{source}.{quoted(column[1])}"
    _refuse_several(statement, start, stop)
    return f"({statement.slice(start, stop)})"


def _refuse_several(statement: Statement, start: int, stop: int) -> None:
    """Raise UnsupportedError, with the place, for UNNEST outside of a query: of a row it makes
    several, or none."""
    place = start
    while place < stop:
        if statement.symbol(place) == "(" and statement.keyword(place + 1) in QUERIES:
            place = statement.closing(place)
            continue
        token = statement.tokens[place]
        if token.is_name and token.name == "unnest" and statement.symbol(place + 1) == "(":
            message = "a column is set to one value: put what makes rows into a query"
            raise UnsupportedError(str(statement.error(message, place)))
        place += 1


def lone_column(statement: Statement, start: int, stop: int) -> Name:
    """The column that stands there alone, with its table; empty for all else."""
    if start >= stop or not statement.tokens[start].is_name:
        return ()
    parts, after = statement.table(start)
    return parts if after == stop else ()


def _before(name: str) -> str:
    return f"memwal {name} before"
