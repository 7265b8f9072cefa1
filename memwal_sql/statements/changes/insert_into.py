"""Reads INSERT and REPLACE."""

from __future__ import annotations

from collections.abc import Sequence

import datafusion

from memwal_native import syntax
from memwal_native.syntax import Conflict, Expression
from memwal_sql.statements.changes.change import Change
from memwal_sql.statements.changes.insert import (
    GivenRows,
    InsertOver,
    Overwrite,
    Upsert,
    excluded,
)
from memwal_sql.statements.changes.merge import MATCHED, When
from memwal_sql.statements.changes.returning import Returning, returning_of
from memwal_sql.statements.changes.row_actions import UPDATE
from memwal_sql.statements.changes.target import Target, target_of
from memwal_sql.statements.changes.update import assignments
from memwal_sql.statements.changes.values import value_rows
from memwal_sql.statements.queries.parsed import Statement
from memwal_sql.statements.queries.places import Edit, edited

_EXCLUDED = "excluded"
_OVERWRITE, _REPLACE = "OVERWRITE", "REPLACE"


def insert_of(
    ctx: datafusion.SessionContext, statement: Statement, tree: syntax.Insert
) -> Change | None:
    """The statement, if it is an INSERT or REPLACE into a MemWAL table.

    Raises InvalidCallError, with the place, for an unknown column and for one given twice.
    """
    target = target_of(ctx, statement, tree.target, tree.alias)
    if target is None:
        return None
    returning = returning_of(statement, tree.returning, target)
    columns: list[str] | None = None if tree.by_name else target.columns.names
    if tree.columns is not None:
        columns = target.columns_of(statement, tree.columns)
    query = f"({tree.query.text})" if target.ctes else tree.query.text
    given = GivenRows(target, query, columns)
    rows = tree.rows
    if rows is not None and columns is not None:
        given = value_rows(target, tree.query.text, rows, columns)
    if tree.conflict is not None:
        if tree.mode in (_OVERWRITE, _REPLACE):
            raise statement.error(
                "INSERT OVERWRITE leaves no rows to conflict with", tree.conflict.start
            )
        return _over(statement, tree.conflict, target, returning, given)
    if tree.mode == _OVERWRITE:
        return Overwrite(target, returning, given)
    is_whole = columns is not None and len(columns) == len(target.columns)
    if is_whole or tree.mode == _REPLACE:
        return Upsert(target, returning, given)
    return InsertOver(target, returning, given, keep="last", matched=None)


def _over(
    statement: Statement,
    conflict: Conflict,
    target: Target,
    returning: Returning | None,
    given: GivenRows,
) -> InsertOver:
    """`ON CONFLICT [(key)] DO NOTHING | DO UPDATE SET ... [WHERE condition]`."""
    key = target.table.primary_key
    if conflict.key is not None:
        names = target.columns_of(statement, conflict.key)
        if set(names) != set(key):
            at = conflict.key[0].start
            raise statement.error(f"rows conflict by the primary key {list(key)} only", at)
    if conflict.sets is None:
        nothing = When(MATCHED, "", "")
        return InsertOver(target, returning, given, keep="first", matched=nothing)
    columns = target.columns.names
    given_columns = columns if given.columns is None else given.columns
    texts = {
        column: target.default_text(column, assignment.value.text)
        or _with_excluded(statement, assignment.value, columns, given_columns)
        for column, assignment in zip(
            assignments(statement, conflict.sets, target), conflict.sets, strict=True
        )
    }
    values = {n: text for n, text in texts.items() if n not in key or text != excluded(n)}
    condition = ""
    if conflict.condition is not None:
        condition = _with_excluded(statement, conflict.condition, columns, given_columns)
    return InsertOver(
        target, returning, given, keep=None, matched=When(MATCHED, condition, UPDATE, values)
    )


def _with_excluded(
    statement: Statement,
    expression: Expression,
    columns: Sequence[str],
    given_columns: Sequence[str],
) -> str:
    """An expression with columns of the rows given in place of `excluded.column`.

    Raises InvalidCallError, with the place, for a column that is not given, and for any other use
    of `excluded`.
    """
    edits = []
    for column in expression.columns:
        if column.parts[0] != _EXCLUDED:
            continue
        if len(column.parts) == 1:
            if _EXCLUDED in columns:
                continue
            message = "use excluded.column, the value that the row given has in a column"
            raise statement.error(message, column.start)
        name = column.parts[1]
        if name not in given_columns:
            message = f"the rows given have no such column; they have {list(given_columns)}"
            raise statement.error(message, column.end - len(name))
        fields = "".join(f"[{field!r}]" for field in column.parts[2:])
        start = column.start - expression.start
        edits.append(Edit(start, column.end - expression.start, excluded(name) + fields))
    text = edited(expression.text, edits)
    return text if text in {edit.text for edit in edits} else f"({text})"
