"""UPDATE: new values of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import datafusion
import pyarrow as pa

from memwal_native import syntax
from memwal_native.syntax import Assignment, Expression
from memwal_sql.arguments import quoted
from memwal_sql.statements.changes.change import Change
from memwal_sql.statements.changes.delete import condition_of, other_tables
from memwal_sql.statements.changes.fitting import fitted_rows
from memwal_sql.statements.changes.reading import Reading
from memwal_sql.statements.changes.returning import Returning, returning_of
from memwal_sql.statements.changes.row_actions import UPDATE, RowAction
from memwal_sql.statements.changes.target import Target, target_of
from memwal_sql.statements.queries.parsed import Statement


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
        """`values` are expressions by column; the rest are clauses as written, as parts of a
        SELECT."""
        super().__init__(target, returning)
        self._values = values
        self._where = f"FROM {target.from_item}{others} {condition}"
        key = target.table.primary_key
        self.reruns_all = bool(set(key) & set(values))

    @property
    def query(self) -> str:
        """The query for the new rows and, if key columns are set, their old keys."""
        target, values = self.target, self._values
        columns = [
            f"{values[name]} AS {quoted(name)}" if name in values else target.column(name)
            for name in target.columns.names
        ]
        if self.reruns_all:
            key = target.table.primary_key
            columns += [f"{target.qualifier}.{quoted(n)} AS {quoted(_before(n))}" for n in key]
        return f"SELECT {', '.join(columns)} {self._where}"

    def actions(self, reading: Reading, keys: pa.Table | None) -> list[RowAction]:
        """Updates."""
        columns, key = self.target.columns, list(self.target.table.primary_key)
        computed = reading.rows(self.query, keys)
        rows = fitted_rows(computed.select(columns.names), columns)
        if not self.reruns_all:
            return [RowAction(UPDATE, rows)]
        before = computed.select(map(_before, key))
        return [RowAction(UPDATE, rows, before.rename_columns(key))]


def update_of(
    ctx: datafusion.SessionContext, statement: Statement, tree: syntax.Update
) -> Update | None:
    """The statement, if it is an UPDATE of a MemWAL table."""
    target = target_of(ctx, statement, tree.target, tree.alias)
    if target is None:
        return None
    returning = returning_of(statement, tree.returning, target)
    values = assignments(statement, tree.sets, target)
    condition = condition_of(tree.condition)
    return Update(target, returning, values, other_tables(tree.others), condition)


def assignments(
    statement: Statement, sets: Sequence[Assignment], target: Target, source: str = ""
) -> dict[str, str]:
    """The expressions of `column = value, ...`, by column. A column of `source`, a quoted name, is
    always written the same way.

    Raises InvalidCallError, with the place, for an unknown column, and for one set twice.
    """
    values: dict[str, str] = {}
    for assignment in sets:
        column = target.column_of(statement, assignment.column)
        if column in values:
            raise statement.error("this column is set twice", assignment.column.start)
        value = assignment.value
        default = target.default_text(column, value.text)
        values[column] = default or source_column(statement, value, source)
    return values


def source_column(statement: Statement, value: Expression, source: str) -> str:
    """An expression in parentheses; a column of the source always as `"s"."column"`. Raises
    UnsupportedError, with the place, for an expression that makes several rows."""
    column = value.column
    if column is not None and len(column) == len(("s", "column")) and quoted(column[0]) == source:
        return f"{source}.{quoted(column[1])}"
    if value.unnests:
        message = "a column is set to one value: put an expression that makes rows into a query"
        raise statement.unsupported(message, value.start)
    return f"({value.text})"


def _before(name: str) -> str:
    return f"memwal {name} before"
