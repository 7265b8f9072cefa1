"""ALTER TABLE: the columns of a table.

ALTER TABLE t ADD COLUMN [IF NOT EXISTS] n BIGINT, DROP COLUMN [IF EXISTS] m
ALTER TABLE t RENAME COLUMN n TO m
ALTER TABLE t ALTER COLUMN n DROP NOT NULL, ALTER COLUMN m TYPE BIGINT
ALTER TABLE t ALTER COLUMN n SET DEFAULT 0, ALTER COLUMN m DROP DEFAULT
"""

from __future__ import annotations

from collections.abc import Callable

import datafusion
import pyarrow as pa

from memwal_native.syntax import Alteration, AlterTable, Reference
from memwal_sql.errors import InvalidCallError, MemWalError
from memwal_sql.life_log import life_log
from memwal_sql.maintain.columns import check_wider
from memwal_sql.registration import mount
from memwal_sql.session.registered import Registered, whole_name
from memwal_sql.session.session import session_of
from memwal_sql.state.defaults import defaults_of, with_default
from memwal_sql.state.schema import check_schema
from memwal_sql.statements.definitions.columns import columns_of, constant
from memwal_sql.statements.definitions.names import (
    is_known,
    not_ours,
    registered,
    table_of,
)
from memwal_sql.statements.queries.parsed import Statement
from memwal_sql.statements.queries.planning import answer
from memwal_sql.table import Table

_log = life_log(__name__)

Change = Callable[[], None]


def run_alter_table(
    ctx: datafusion.SessionContext, statement: Statement, tree: AlterTable
) -> datafusion.DataFrame:
    """Run ALTER TABLE. All of its changes are checked before the first is made."""
    parts = tuple(tree.table.parts)
    registration = registered(ctx, parts)
    if registration is None:
        if tree.lenient and not is_known(ctx, parts):
            return answer(ctx, pa.table({}))
        raise not_ours(ctx, statement, tree.table)
    table = table_of(registration)
    table.refresh()
    changes, columns = [], table.schema
    for alteration in tree.changes:
        change, columns = _change(statement, table, columns, alteration)
        check_schema(columns, table.primary_key)
        changes.append(change)
    try:
        for change in changes:
            change()
    finally:  # changes made before a failed one stay
        if session_of(ctx).folder(whole_name(parts)) is None:  # a folder opens tables itself
            _register_again(ctx, registration, table)
    return answer(ctx, pa.table({}))


def _register_again(ctx: datafusion.SessionContext, registration: Registered, table: Table) -> None:
    """Register the table with its current columns. A failure leaves the table as it is."""
    name, level, missing = registration.name, registration.consistency, registration.missing
    try:
        mount(ctx, name, table, level, missing=missing, approximate=registration.approximate)
    except MemWalError as error:
        kind = type(error).__name__
        _log.warning("%s has other columns, register it again: %s", table.uri, kind)


def _change(
    statement: Statement, table: Table, columns: pa.Schema, alteration: Alteration
) -> tuple[Change, pa.Schema]:
    """A change of a table whose columns are `columns` by then, and the columns after it.

    Raises InvalidCallError, with the place, for a change that can't be made.
    """
    if alteration.column is None:
        return _add(statement, table, columns, alteration)
    name = alteration.column.parts[-1]
    if alteration.action == "DROP" and alteration.lenient and name not in columns.names:
        return lambda: None, columns
    index = _index(statement, table, columns, alteration.column)
    if alteration.action == "DROP":
        return lambda: table.drop_columns([name]), columns.remove(index)
    field = columns.field(index)
    if alteration.new_name is not None:
        new = alteration.new_name
        return lambda: table.rename_column(name, new), columns.set(index, field.with_name(new))
    if alteration.action == "SET TYPE":
        kind = columns_of(statement, alteration.columns).schema.field(0).type
        check_wider(field, kind)
        return lambda: table.set_type(name, kind), columns.set(index, field.with_type(kind))
    if alteration.action in ("SET DEFAULT", "DROP DEFAULT"):
        value = constant(field, alteration.value) if alteration.value else pa.scalar(None)
        changed = with_default(field, value)
        return lambda: table.set_default(name, value), columns.set(index, changed)
    if alteration.action == "SET NOT NULL":
        table.set_nullable(name, nullable=False)  # raises, with the reason
    return lambda: table.set_nullable(name), columns.set(index, field.with_nullable(True))


def _add(
    statement: Statement, table: Table, columns: pa.Schema, alteration: Alteration
) -> tuple[Change, pa.Schema]:
    described = columns_of(statement, alteration.columns)
    if described.primary_key:
        raise InvalidCallError("a primary key can't be added to a table")
    present = columns.names if alteration.lenient else ()
    fields = [field for field in described.schema if field.name not in present]
    at = alteration.columns[0].start
    if taken := [field.name for field in fields if field.name in columns.names]:
        raise statement.error(f"the table has columns {taken} already", at)
    if required := [field.name for field in fields if not field.nullable]:
        message = f"{required} would be null in existing rows: make them nullable"
        raise statement.error(message, at)
    if defaults := list(defaults_of(pa.schema(fields))):
        message = (
            f"{defaults} would be null in existing rows: leave DEFAULT out, ALTER COLUMN ... SET "
            "DEFAULT for new rows, and UPDATE the others"
        )
        raise statement.error(message, at)
    added = pa.schema([*columns, *fields])
    return (lambda: table.add_columns(fields)) if fields else lambda: None, added


def _index(statement: Statement, table: Table, columns: pa.Schema, column: Reference) -> int:
    """The position of a column that may be changed."""
    name = column.parts[-1]
    if len(column.parts) > 1 or name not in columns.names:
        raise statement.error(f"the table has no such column; it has {columns.names}", column.start)
    if name in table.primary_key:
        message = (
            f"{name!r} is part of the primary key, which can't be changed: make a new table, "
            "and write the rows into it"
        )
        raise statement.error(message, column.start)
    return int(columns.get_field_index(name))
