"""The table that a statement changes, under the names that the statement has for it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import cast

import datafusion
import pyarrow as pa

from memwal_sql.arguments import quoted
from memwal_sql.errors import (
    FencedError,
    InvalidCallError,
    PartlyWrittenError,
    ReopenError,
    UnsupportedError,
    WriterFailedError,
)
from memwal_sql.session.table_functions import NAME_PARTS, TableName, search_functions, whole_name
from memwal_sql.statements.queries.as_of import refuse_past
from memwal_sql.statements.queries.pins import WritableTable
from memwal_sql.statements.queries.places import Name
from memwal_sql.statements.queries.planning import check_names, check_table
from memwal_sql.statements.queries.seen_columns import (
    ColumnsChanged,
    check_columns,
    columns_changed,
)
from memwal_sql.statements.queries.tokens import Statement

# What other databases take at the end of such a statement.
_REFUSED = ("ORDER BY", "LIMIT")


@dataclass(frozen=True, slots=True)
class Target:
    """A table.

    Attributes:
        columns: those that the session sees, for the whole statement.
        changed: the error for others that it has by now.
        text: its name as it is written.
        alias: the other name that the statement gives it, if it does.
        ctes: the text of the WITH clause before the statement; empty for none.
    """

    name: TableName
    table: WritableTable
    columns: pa.Schema
    changed: ColumnsChanged
    text: str
    parts: Name
    alias: str | None
    ctes: str

    @property
    def name_of_columns(self) -> str:
        """What its columns go by."""
        return self.parts[-1] if self.alias is None else self.alias

    @property
    def qualifier(self) -> str:
        """The same as SQL takes it."""
        return quoted(self.name_of_columns)

    @property
    def source(self) -> str:
        """It as a part of FROM, under its name alone, so that no other table can have that too."""
        return f"{self.text} AS {self.qualifier}"

    @property
    def strong(self) -> Mapping[TableName, pa.Schema]:
        """It as a table that `frame` reads as it is now."""
        return {self.name: self.columns}

    def column(self, name: str) -> str:
        """One of its columns, as an expression under the column's own name."""
        return f"{self.qualifier}.{quoted(name)} AS {quoted(name)}"

    def place_of(self, statement: Statement, place: int) -> tuple[str, int]:
        """The column that is named at a place, for a value to be written into, and the place after
        it. Raises InvalidCallError, with the place, for another table's, or one that it lacks."""
        parts, after = statement.table(place)
        if len(parts) > 1 and parts[-2] not in (self.alias, self.parts[-1]):
            if parts[-2] in self.columns.names:
                message = f"fields can't be set one by one: give {parts[-2]!r} a whole value"
                raise UnsupportedError(str(statement.error(message, place)))
            raise statement.error(f"{parts[-2]!r} is not the table that is written", place)
        names = self.columns.names
        if parts[-1] not in names:
            raise statement.error(f"the table has {names}, and not this column", place)
        return parts[-1], after

    @contextmanager
    def same_columns(self) -> Iterator[None]:
        """Within it, what fails as the table has got other columns raises that error: nothing was
        written then."""
        try:
            yield
        except (FencedError, PartlyWrittenError, WriterFailedError):  # rows may be written
            raise
        except (InvalidCallError, ReopenError) as error:
            now = self.table.schema
            if now.equals(self.columns):
                raise
            raise self.changed(now) from error


def target_at(
    ctx: datafusion.SessionContext,
    statement: Statement,
    place: int,
    ctes: Statement | None = None,
    clauses: Collection[str] | None = None,
) -> tuple[Target, int] | None:
    """The table whose name stands at a place, with the place after it and its other name; None for
    one that is not ours. `clauses` are the words that may follow it; without them it gets no other
    name.

    Raises ReopenError where it is known to have other columns than the session sees;
    InvalidCallError, with the place, where something else follows, and where the WITH clause
    has a query of this name; UnsupportedError where the session takes names otherwise.
    """
    parts, after = statement.table(place)
    name = whole_name(parts) if len(parts) <= NAME_PARTS else None
    found = None if name is None else search_functions(ctx).registered(name, ctx)
    if name is None or found is None:
        check_table(ctx, statement, place, after)
        return None
    check_names(ctx)
    check_columns(found)
    refuse_past(statement, after)
    if ctes is not None and len(parts) == 1 and parts[0] in cte_names(ctes):
        raise statement.error("WITH has a query of this name: give that another one", place)
    text = statement.slice(place, after)
    alias, after = (None, after) if clauses is None else alias_at(statement, after, clauses)
    table, columns = cast(WritableTable, found.table), found.columns
    changed = partial(columns_changed, ctx, name, columns)
    before = "" if ctes is None else ctes.slice(0, len(ctes))
    return Target(name, table, columns, changed, text, parts, alias, before), after


def alias_at(statement: Statement, place: int, clauses: Collection[str]) -> tuple[str | None, int]:
    """The other name that a statement gives a table, and the place after it."""
    if statement.keyword(place) == "AS":
        place += 1
    elif (
        place >= len(statement)
        or statement.keyword(place) in clauses
        or statement.symbol(place) == "("
    ):
        return None, place
    if place >= len(statement) or not statement.tokens[place].is_name:
        raise statement.error("a clause or another name of the table must stand here", place)
    return statement.tokens[place].name, place + 1


def columns_at(statement: Statement, place: int, target: Target) -> tuple[list[str], int]:
    """The columns in the parentheses at a place, and the place after these.

    Raises InvalidCallError, with the place, for one that the table lacks, or that stands twice.
    """
    names: list[str] = []
    after = statement.closing(place)
    for first, last in statement.split(place + 1, after - 1):
        name, end = target.place_of(statement, first)
        if end != last:
            raise statement.error("a comma must follow the column", end)
        if name in names:
            raise statement.error("this column is given twice", first)
        names.append(name)
    return names, after


def after_ctes(statement: Statement) -> int:
    """The place after the WITH clause that a statement begins with; 0 if it has none."""
    if statement.keyword(0) != "WITH":
        return 0
    place = 2 if statement.keyword(1) == "RECURSIVE" else 1
    while True:
        opening = next((p for p in statement.top(place, len(statement)) if _body(statement, p)), 0)
        if not opening:
            return 0
        place = statement.closing(opening)
        if statement.symbol(place) != ",":
            return place
        place += 1


def _body(statement: Statement, place: int) -> bool:
    return statement.symbol(place) == "(" and statement.keyword(place - 1) in ("AS", "MATERIALIZED")


def cte_names(ctes: Statement) -> set[str]:
    """The names of the queries in a WITH clause."""
    start = 2 if ctes.keyword(1) == "RECURSIVE" else 1
    return {ctes.tokens[first].name for first, _ in ctes.split(start, len(ctes))}


def refuse_others(statement: Statement, start: int, kind: str) -> None:
    """Raise UnsupportedError, with the place, for clauses that other databases have here."""
    place = statement.first(_REFUSED, start)
    if place < len(statement):
        message = (
            f"{kind} can't have this clause: choose the rows by their keys, as in "
            "WHERE id IN (SELECT id FROM t ORDER BY n LIMIT 10)"
        )
        raise UnsupportedError(str(statement.error(message, place)))
