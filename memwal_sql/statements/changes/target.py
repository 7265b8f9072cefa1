"""The table that a statement changes, under the names that the statement has for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import cast

import datafusion
import pyarrow as pa

from memwal_native.syntax import Reference
from memwal_sql.arguments import quoted
from memwal_sql.errors import (
    FencedError,
    InvalidCallError,
    PartlyWrittenError,
    ReopenError,
    WriterFailedError,
)
from memwal_sql.session.table_functions import NAME_PARTS, TableName, search_functions, whole_name
from memwal_sql.statements.queries.parsed import Statement
from memwal_sql.statements.queries.pins import WritableTable
from memwal_sql.statements.queries.places import Name
from memwal_sql.statements.queries.planning import check_names, check_table
from memwal_sql.statements.queries.seen_columns import (
    ColumnsChanged,
    check_columns,
    columns_changed,
)


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

    def column_of(self, statement: Statement, reference: Reference) -> str:
        """The column that a reference names, for a value to be written into. Raises
        InvalidCallError, with the place, for another table's, or one that it lacks."""
        parts, at = reference.parts, reference.start
        if len(parts) > 1 and parts[-2] not in (self.alias, self.parts[-1]):
            if parts[-2] in self.columns.names:
                message = f"fields can't be set one by one: give {parts[-2]!r} a whole value"
                raise statement.unsupported(message, at)
            raise statement.error(f"{parts[-2]!r} is not the table that is written", at)
        names = self.columns.names
        if parts[-1] not in names:
            raise statement.error(f"the table has {names}, and not this column", at)
        return parts[-1]

    def columns_of(self, statement: Statement, references: Sequence[Reference]) -> list[str]:
        """The columns of a list. Raises InvalidCallError, with the place, for one that the table
        lacks, or that stands twice."""
        names: list[str] = []
        for reference in references:
            name = self.column_of(statement, reference)
            if name in names:
                raise statement.error("this column is given twice", reference.start)
            names.append(name)
        return names

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


def target_of(
    ctx: datafusion.SessionContext,
    statement: Statement,
    reference: Reference,
    alias: str | None = None,
) -> Target | None:
    """The table that a statement changes; None for one that is not ours.

    Raises ReopenError where it is known to have other columns than the session sees;
    InvalidCallError, with the place, where the session has no table of the name, or the WITH clause
    has a query of it; UnsupportedError where the session takes names otherwise, and for AS OF.
    """
    parts = tuple(reference.parts)
    name = whole_name(parts) if len(parts) <= NAME_PARTS else None
    registered = None if name is None else search_functions(ctx).registered(name, ctx)
    if name is None or registered is None:
        check_table(ctx, reference.text)
        return None
    check_names(ctx)
    check_columns(registered)
    if any(past.after == reference.end for past in statement.sql.pasts):
        message = "a table is changed as it is now: table.restore(...) goes back to its past"
        raise statement.unsupported(message, reference.end + 1)
    if len(parts) == 1 and parts[0] in statement.sql.cte_names:
        message = "WITH has a query of this name: give that another one"
        raise statement.error(message, reference.start)
    table, columns = cast(WritableTable, registered.table), registered.columns
    changed = partial(columns_changed, ctx, name, columns)
    return Target(name, table, columns, changed, reference.text, parts, alias, statement.ctes)
