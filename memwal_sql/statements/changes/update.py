"""UPDATE: new values of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import datafusion
import pyarrow as pa

from exec_nodes.base.thresholds import Thresholds
from memwal_native import syntax
from memwal_native.syntax import Assignment, Expression
from memwal_sql.arguments import quoted
from memwal_sql.statements.changes.change import Change
from memwal_sql.statements.changes.delete import condition_of, other_tables
from memwal_sql.statements.changes.fitting import fitted, fitted_rows
from memwal_sql.statements.changes.reading import Reading
from memwal_sql.statements.changes.returning import Returning, returning_of
from memwal_sql.statements.changes.row_actions import UPDATE, RowAction, keys_of
from memwal_sql.statements.changes.target import Target, target_of
from memwal_sql.statements.queries.parsed import Statement
from memwal_sql.write.conditional.groups import MOST_TOGETHER


class LookedUp(Thresholds):
    """How many rows of a table of many columns are looked up by key. Of 50,000 rows of 300 numbers
    5,000 took 0.09 s, and a scan 0.12 s; all of them 1.2 s, and a scan 0.6 s."""

    most_rows = 5_000


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
        is_wide = len(columns) > MOST_TOGETHER >= len(self._values)
        if is_wide and not self.reruns_all:
            few = self._few_rows(reading, keys)
            if few is not None:
                return [RowAction(UPDATE, few)]
        computed = reading.rows(self.query, keys)
        rows = fitted_rows(computed.select(columns.names), columns)
        if not self.reruns_all:
            return [RowAction(UPDATE, rows)]
        before = computed.select(map(_before, key))
        return [RowAction(UPDATE, rows, before.rename_columns(key))]

    def _few_rows(self, reading: Reading, keys: pa.Table | None) -> pa.Table | None:
        """The new rows, whose other columns are looked up by their keys, as DataFusion's time to
        plan grows with the square of the columns; None for many rows, and for one that several rows
        of other tables change."""
        target, values = self.target, self._values
        shown = [
            *map(target.column, target.table.primary_key),
            *(f"{text} AS {quoted(name)}" for name, text in values.items()),
        ]
        found = reading.rows(f"SELECT {', '.join(shown)} {self._where}", keys)
        if found.num_rows > LookedUp.most_rows:
            return None
        old = reading.get(keys_of(target, [found]), list(values.values()))
        if old.num_rows != found.num_rows:
            return None
        return pa.table(
            [
                fitted(found[field.name], field) if field.name in values else old[field.name]
                for field in target.columns
            ],
            schema=target.columns,
        )


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
