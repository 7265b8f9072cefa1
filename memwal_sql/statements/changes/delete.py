"""DELETE and TRUNCATE."""

from __future__ import annotations

import datafusion
import numpy as np
import pyarrow as pa

from exec_nodes.keys.keys import KeyBatch
from memwal_sql.statements.changes.acts import DELETE, Act, keys_of
from memwal_sql.statements.changes.change import Change
from memwal_sql.statements.changes.reading import Reading
from memwal_sql.statements.changes.returning import Returning, returning_at
from memwal_sql.statements.changes.target import Target, refuse_others, target_at
from memwal_sql.statements.queries.tokens import Statement

# What belongs to a query that other tables are read by, and to no statement that changes rows.
_OF_QUERIES = ("UNION", "INTERSECT", "EXCEPT", "MINUS", "GROUP BY", "HAVING", "QUALIFY")
_CLAUSES = ("USING", "WHERE", "RETURNING", "ORDER", "LIMIT")


class Delete(Change):
    """`DELETE FROM t [AS a] [USING others] [WHERE condition] [RETURNING ...]`."""

    def __init__(
        self, target: Target, returning: Returning | None, others: str, condition: str
    ) -> None:
        """`others` and `condition` are the clauses as they are written, as parts of a SELECT."""
        super().__init__(target, returning)
        self._matches = bool(others)
        self._where = f"FROM {target.source}{others} {condition}"

    @property
    def query(self) -> str:
        """Finds the keys, or with RETURNING the rows."""
        target = self.target
        names = target.table.primary_key if self.returning is None else target.columns.names
        columns = ", ".join(map(target.column, names))
        return f"SELECT {columns} {self._where}"

    def acts(self, reading: Reading, keys: pa.Table | None) -> list[Act]:
        """Deletes, of each row once however many others match it."""
        rows = reading.rows(self.query, keys)
        if self._matches:
            positions = KeyBatch(keys_of(self.target, [rows])).positions
            rows = rows.take(pa.array(np.fromiter(positions.values(), np.int64)))
        return [Act(DELETE, rows)]


def delete(
    ctx: datafusion.SessionContext, statement: Statement, ctes: Statement | None
) -> Delete | None:
    """The statement, if it is a DELETE from a table of ours.

    Raises InvalidCallError and UnsupportedError, with the place, for what it can't be.
    """
    place = 2 if statement.has(1, "FROM") else 1
    found = target_at(ctx, statement, place, ctes, _CLAUSES)
    if found is None:
        return None
    if place == 1:
        raise statement.error("FROM is missing", place)
    target, start = found
    returning, end = returning_at(statement, start, target)
    refuse_others(statement, start, "DELETE")
    where = statement.find("WHERE", start, end)
    others = other_tables(statement, start, where, "USING")
    return Delete(target, returning, others, condition_at(statement, where, end))


def truncate(
    ctx: datafusion.SessionContext, statement: Statement, ctes: Statement | None
) -> Delete | None:
    """The statement, if it is a TRUNCATE of a table of ours."""
    found = target_at(ctx, statement, 2 if statement.has(1, "TABLE") else 1, ctes)
    if found is None:
        return None
    target, after = found
    if after < len(statement):
        raise statement.error("TRUNCATE takes the name of one table alone", after)
    return Delete(target, None, "", condition_at(statement, after, after))


def condition_at(statement: Statement, place: int, stop: int) -> str:
    """The WHERE clause at a place, or one that is always true: what may follow the condition of a
    SELECT can't follow this one, as it is in parentheses."""
    if place + 1 == stop:
        raise statement.error("a condition is missing", stop)
    return f"WHERE ({statement.slice(place + 1, stop)})" if place < stop else "WHERE 1 = 1"


def other_tables(statement: Statement, place: int, stop: int, word: str) -> str:
    """The tables that the rows are compared with, as a further part of FROM."""
    if place == stop:
        return ""
    if statement.keyword(place) != word:
        raise statement.error(f"{word}, WHERE or RETURNING must stand here", place)
    after = place + 1
    if after == stop:
        raise statement.error("a table is missing", after)
    of_query = min(statement.find(one, after, stop) for one in _OF_QUERIES)
    if of_query < stop:
        raise statement.error(f"put the query that {word} reads into parentheses", of_query)
    return f", {statement.slice(after, stop)}"
