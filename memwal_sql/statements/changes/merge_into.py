"""Reads MERGE INTO."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import datafusion

from memwal_native import syntax
from memwal_native.syntax import Expression
from memwal_sql.arguments import quoted
from memwal_sql.errors import InvalidCallError
from memwal_sql.statements.changes.merge import Merge, On, When
from memwal_sql.statements.changes.returning import returning_of
from memwal_sql.statements.changes.row_actions import INSERT, UPDATE
from memwal_sql.statements.changes.target import Target, target_of
from memwal_sql.statements.changes.update import assignments, source_column
from memwal_sql.statements.queries.parsed import Statement

_SOURCE = "memwal source"


def merge_of(
    ctx: datafusion.SessionContext, statement: Statement, tree: syntax.Merge
) -> Merge | None:
    """The statement, if it is a MERGE into a MemWAL table.

    Raises InvalidCallError, with the place, for a MERGE that can't be run.
    """
    target = target_of(ctx, statement, tree.target, tree.alias)
    if target is None:
        return None
    returning = returning_of(statement, tree.returning, target, merges=True)
    alias = quoted(tree.source_name or _SOURCE)
    if alias == target.qualifier:
        message = "the source needs a name that differs from the table's: add AS s"
        raise statement.error(message, tree.source.start)
    on = _on(statement, tree, target, alias)
    whens: list[When] = []
    for clause in tree.whens:
        when = _when(statement, clause, target, alias, on)
        if any(earlier.of == when.of and not earlier.condition for earlier in whens):
            raise statement.error("an earlier WHEN takes all rows of this one", clause.start)
        whens.append(when)
    return Merge(target, returning, tree.source.text, alias, on, whens)


def _on(statement: Statement, tree: syntax.Merge, target: Target, alias: str) -> On:
    text = f"({tree.on.text})"
    key: dict[str, str] = {}
    for sides in tree.equalities:
        for side, other in (sides, sides[::-1]):
            column = side.column or []
            if tuple(column[:-1]) == (target.name_of_columns,) and _is_of(other, alias):
                key[column[-1]] = source_column(statement, other, alias)
    primary_key = target.table.primary_key
    if not set(primary_key) <= set(key):
        return On(text, {}, key_only=False)
    named = {name: key[name] for name in primary_key}
    return On(text, named, key_only=tree.conjuncts == len(primary_key))


def _is_of(expression: Expression, alias: str) -> bool:
    """Whether an expression uses only columns of the source, written `s.column`."""
    if expression.has_query:
        return False
    return all(len(c.parts) > 1 and quoted(c.parts[0]) == alias for c in expression.columns)


def _when(statement: Statement, clause: syntax.When, target: Target, alias: str, on: On) -> When:
    condition = "" if clause.condition is None else f"({clause.condition.text})"
    if clause.star is not None:
        values = {name: f"{alias}.{quoted(name)}" for name in target.columns.names}
    elif clause.action == INSERT:
        values = _inserted(statement, clause, target, alias)
    else:
        values = assignments(statement, clause.sets, target, alias)
    if clause.action == UPDATE:
        values = {name: text for name, text in values.items() if on.key.get(name) != text}
    error = None if clause.star is None else partial(_lacking_error, statement, clause.star)
    return When(clause.of, condition, clause.action, values, error)


def _inserted(
    statement: Statement, clause: syntax.When, target: Target, alias: str
) -> dict[str, str]:
    names = target.columns.names
    if clause.columns is not None:
        names = target.columns_of(statement, clause.columns)
    if len(clause.values) != len(names):
        message = f"{len(clause.values)} values are given for {len(names)} columns"
        raise statement.error(message, clause.values[0].start)
    return {
        name: target.default_text(name, value.text) or source_column(statement, value, alias)
        for name, value in zip(names, clause.values, strict=True)
    }


def _lacking_error(statement: Statement, place: int, names: Sequence[str]) -> InvalidCallError:
    """The error for a `*` at a place, for columns that the source lacks."""
    return statement.error(
        f"the source lacks the columns {list(names)} of the table: name those to write, as in "
        "UPDATE SET a = s.a, or INSERT (a) VALUES (s.a)",
        place,
    )
