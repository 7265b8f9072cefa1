"""DELETE and TRUNCATE."""

from __future__ import annotations

import datafusion
import numpy as np
import pyarrow as pa

from exec_nodes.keys.keys import KeyBatch
from memwal_native import syntax
from memwal_native.syntax import Expression, Part
from memwal_sql.statements.changes.change import Change
from memwal_sql.statements.changes.reading import Reading
from memwal_sql.statements.changes.returning import Returning, returning_of
from memwal_sql.statements.changes.row_actions import DELETE, RowAction, keys_of
from memwal_sql.statements.changes.target import Target, target_of
from memwal_sql.statements.queries.parsed import Statement


class Delete(Change):
    """`DELETE FROM t [AS a] [USING others] [WHERE condition] [RETURNING ...]`."""

    def __init__(
        self, target: Target, returning: Returning | None, others: str, condition: str
    ) -> None:
        """`others` and `condition` are clauses as written, as parts of a SELECT."""
        super().__init__(target, returning)
        self._matches = bool(others)
        self._where = f"FROM {target.from_item}{others} {condition}"

    @property
    def query(self) -> str:
        """The query for the keys or, with RETURNING, the rows."""
        target = self.target
        names = target.table.primary_key if self.returning is None else target.columns.names
        columns = ", ".join(map(target.column, names))
        return f"SELECT {columns} {self._where}"

    def actions(self, reading: Reading, keys: pa.Table | None) -> list[RowAction]:
        """The deletes, one per row however many other rows match it."""
        rows = reading.rows(self.query, keys)
        if self._matches:
            positions = KeyBatch(keys_of(self.target, [rows])).positions
            rows = rows.take(pa.array(np.fromiter(positions.values(), np.int64)))
        return [RowAction(DELETE, rows)]


def delete_of(
    ctx: datafusion.SessionContext, statement: Statement, tree: syntax.Delete
) -> Delete | None:
    """The statement, if it is a DELETE from a MemWAL table."""
    target = target_of(ctx, statement, tree.target, tree.alias)
    if target is None:
        return None
    returning = returning_of(statement, tree.returning, target)
    return Delete(target, returning, other_tables(tree.others), condition_of(tree.condition))


def truncate_of(
    ctx: datafusion.SessionContext, statement: Statement, tree: syntax.Truncate
) -> Delete | None:
    """The statement, if it is a TRUNCATE of a MemWAL table."""
    target = target_of(ctx, statement, tree.target)
    return None if target is None else Delete(target, None, "", condition_of(None))


def condition_of(condition: Expression | None) -> str:
    """The WHERE clause, or one that is always true. The parentheses keep clauses out that may
    follow the condition of a SELECT."""
    return "WHERE 1 = 1" if condition is None else f"WHERE ({condition.text})"


def other_tables(others: Part | None) -> str:
    """The other tables, as a further part of FROM."""
    return "" if others is None else f", {others.text}"
