"""The table that a statement changes, under its names in the statement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import cast

import datafusion
import pyarrow as pa

from exec_nodes.arrow.casts import Column
from exec_nodes.base.lazy import lazy_property
from memwal_native.syntax import Reference
from memwal_sql.arguments import literal, quoted
from memwal_sql.errors import (
    FencedError,
    InvalidCallError,
    PartlyWrittenError,
    ReopenError,
    TransactionUnknownError,
    WriterFailedError,
)
from memwal_sql.session.registered import NAME_PARTS, TableName, whole_name
from memwal_sql.session.session import session_of
from memwal_sql.state.defaults import stored_defaults
from memwal_sql.statements.queries.parsed import Statement
from memwal_sql.statements.queries.places import Name
from memwal_sql.statements.queries.planning import check_names, check_table
from memwal_sql.statements.queries.seen_columns import (
    ColumnsChanged,
    check_columns,
    columns_changed,
)
from memwal_sql.table import Table

DEFAULT = "DEFAULT"


@dataclass(frozen=True)
class Target:
    """A table.

    Attributes:
        columns: the columns that the session sees, for the whole statement.
        changed: makes the error for other columns that it has by now.
        text: its name as written.
        alias: its alias in the statement, if any.
        ctes: the text of the WITH clause before the statement; empty for none.
    """

    name: TableName
    table: Table
    columns: pa.Schema
    changed: ColumnsChanged
    text: str
    parts: Name
    alias: str | None
    ctes: str

    @property
    def name_of_columns(self) -> str:
        """The name that qualifies its columns."""
        return self.parts[-1] if self.alias is None else self.alias

    @property
    def qualifier(self) -> str:
        """The same name quoted for SQL."""
        return quoted(self.name_of_columns)

    @property
    def from_item(self) -> str:
        """The table in FROM, under its name alone, so that no other table can have that name."""
        return f"{self.text} AS {self.qualifier}"

    @property
    def strong(self) -> Mapping[TableName, pa.Schema]:
        """The table as an argument of `query_frame` that is read in its current state."""
        return {self.name: self.columns}

    def column(self, name: str) -> str:
        """One of its columns, as an expression under the column's own name."""
        return f"{self.qualifier}.{quoted(name)} AS {quoted(name)}"

    def column_of(self, statement: Statement, reference: Reference) -> str:
        """The name of the column that a reference names, to be written to. Raises InvalidCallError,
        with the place, for a column of another table, or an unknown one."""
        parts, at = reference.parts, reference.start
        if len(parts) > 1 and parts[-2] not in (self.alias, self.parts[-1]):
            if self._has(parts[-2]):
                message = f"fields can't be set one by one: set all of {parts[-2]!r}"
                raise statement.unsupported(message, at)
            raise statement.error(f"{parts[-2]!r} is not the table that is written", at)
        if not self._has(parts[-1]):
            names = self.columns.names
            raise statement.error(f"the table has no such column; it has {names}", at)
        return parts[-1]

    def new_rows(self, columns: Mapping[str, Column], count: int) -> pa.Table:
        """Whole rows of some columns: the others have their default, or null without one."""
        defaults = {} if set(columns) == set(self.columns.names) else self._defaults
        made = [
            columns.get(f.name, pa.repeat(defaults.get(f.name, pa.scalar(None, f.type)), count))
            for f in self.columns
        ]
        return pa.table(made, schema=self.columns)

    def default_text(self, column: str, text: str) -> str | None:
        """The default of a column as an expression, if a value as written is the word DEFAULT."""
        if text.upper() != DEFAULT or self._has(DEFAULT.lower()):
            return None
        default = self._defaults.get(column)
        return "NULL" if default is None else literal(default.cast(pa.string()).as_py())

    def _has(self, column: str) -> bool:
        return bool(self.columns.get_field_index(column) >= 0)

    @lazy_property
    def _defaults(self) -> Mapping[str, pa.Scalar]:
        """The defaults that the table has when the statement first needs one; one that was set
        lately does not change columns."""
        self.table.refresh()
        types = {field.name: field.type for field in self.columns}
        defaults = stored_defaults(self.table.schema)
        return {name: value for name, value in defaults.items() if types.get(name) == value.type}

    def columns_of(self, statement: Statement, references: Sequence[Reference]) -> list[str]:
        """The columns of a list. Raises InvalidCallError, with the place, for an unknown column, or
        one given twice."""
        names: dict[str, None] = {}
        for reference in references:
            name = self.column_of(statement, reference)
            if name in names:
                raise statement.error("this column is given twice", reference.start)
            names[name] = None
        return list(names)

    @contextmanager
    def naming_changed_columns(self) -> Iterator[None]:
        """A context in which a failure due to other columns of the table raises that error: nothing
        was written then."""
        try:
            yield
        except (FencedError, PartlyWrittenError, TransactionUnknownError, WriterFailedError):
            # Rows may be written.
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
    """The table that a statement changes; None if it is not a MemWAL table.

    Raises ReopenError if it is known to have other columns than the session sees; InvalidCallError,
    with the place, if the session has no table of the name, or the WITH clause has a query of that
    name; UnsupportedError if the session does not fold names to lower case, and for AS OF.
    """
    parts = tuple(reference.parts)
    name = whole_name(parts) if len(parts) <= NAME_PARTS else None
    registered = None if name is None else session_of(ctx).registered(name, ctx)
    if name is None or registered is None:
        check_table(ctx, reference.text)
        return None
    check_names(ctx)
    check_columns(ctx, registered)
    if any(past.after == reference.end for past in statement.sql.pasts):
        message = "the past of a table can't be changed: table.restore(...) goes back to it"
        raise statement.unsupported(message, reference.end + 1)
    if len(parts) == 1 and parts[0] in statement.sql.cte_names:
        message = "WITH has a query of this name: give the query another name"
        raise statement.error(message, reference.start)
    table, columns = cast(Table, registered.table), registered.columns
    changed = partial(columns_changed, ctx, name, columns)
    return Target(name, table, columns, changed, reference.text, parts, alias, statement.ctes)
