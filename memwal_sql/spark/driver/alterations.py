"""ALTER TABLE: the changes of Spark's statement, as methods of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from memwal_sql.errors import InvalidCallError, UnsupportedError
from memwal_sql.maintain.columns import check_wider
from memwal_sql.spark.driver.definition import arrow_type, columns_of, parsed
from memwal_sql.state.defaults import DEFAULT_KEY, default_of
from memwal_sql.state.schema import check_schema
from memwal_sql.table import Table

Step = Callable[[], None]
Change = Mapping[str, Any]

_REFUSED = {
    "comment": "a comment can't be changed: it is given when a column or table is made",
    "position": "columns stay in their order, and new ones are the last: name them in queries",
    "property": "a table has no properties that can change: key and regions stay as they are",
    "constraint": "a table checks no constraint but its primary key, which stays as it is",
    "cluster": "the regions of a table stay as they are",
}


def steps_of(table: Table, changes: Sequence[Change]) -> list[Step]:
    """The calls that make the changes, one after the other.

    Raises InvalidCallError and UnsupportedError before the first for any that can't be made.
    """
    steps, columns = [], table.schema
    for kind, group in groupby(changes, key=lambda change: change["kind"]):
        for step, after in _steps(table, columns, kind, group):
            check_schema(after, table.primary_key)
            steps.append(step)
            columns = after
    return steps


def _steps(
    table: Table, columns: pa.Schema, kind: str, changes: Iterable[Change]
) -> Iterator[tuple[Step, pa.Schema]]:
    """Each step, and the columns after it. New columns are one step."""
    if kind in _REFUSED:
        raise UnsupportedError(_REFUSED[kind])
    if kind == "add":
        added = [_added(change) for change in changes]
        yield lambda: table.add_columns(added), pa.schema([*columns, *added])
        return
    for change in changes:
        step, columns = _step(table, columns, kind, change)
        yield step, columns


def _step(table: Table, columns: pa.Schema, kind: str, change: Change) -> tuple[Step, pa.Schema]:
    name = _name(change)
    if kind == "drop" and change["ifExists"] and name not in columns.names:
        return lambda: None, columns
    index = _index(table, columns, name)
    field = columns.field(index)
    if kind == "drop":
        return lambda: table.drop_columns([name]), columns.remove(index)
    if kind == "rename":
        new = change["new"]
        return lambda: table.rename_column(name, new), columns.set(index, field.with_name(new))
    if kind == "type":
        wider = arrow_type(name, parsed(change["columns"])[0].dataType)
        check_wider(field, wider)
        return lambda: table.set_type(name, wider), columns.set(index, field.with_type(wider))
    if kind == "nullable":
        if not change["nullable"]:
            table.set_nullable(name, nullable=False)  # raises, with the reason
        return lambda: table.set_nullable(name), columns.set(index, field.with_nullable(True))
    text = change["default"]
    other = {} if text is None else {DEFAULT_KEY: text.encode()}
    value = default_of(field.with_metadata(other))
    return lambda: table.set_default(name, value), columns.set(index, field.with_metadata(other))


def _added(change: Change) -> pa.Field:
    name = _name(change)
    if change["position"] is not None:
        raise UnsupportedError(_REFUSED["position"])
    if change["default"] is not None:
        raise InvalidCallError(
            f"{name!r} would be null in existing rows: leave DEFAULT out, and ALTER COLUMN {name} "
            "SET DEFAULT for new rows"
        )
    (field,) = columns_of(parsed(change["columns"]), {})
    if not field.nullable:
        raise InvalidCallError(f"{name!r} would be null in existing rows: leave NOT NULL out")
    return field


def _name(change: Change) -> str:
    path: Sequence[str] = change["column"]
    if len(path) > 1:
        raise UnsupportedError(
            f"{'.'.join(path)}: a field of a struct can't be changed by itself: add a column of "
            "the new type"
        )
    return path[0]


def _index(table: Table, columns: pa.Schema, name: str) -> int:
    """The position of a column that may be changed."""
    if name not in columns.names:
        raise InvalidCallError(f"the table has no column {name!r}; it has {columns.names}")
    if name in table.primary_key:
        raise UnsupportedError(
            f"{name!r} is part of the primary key, which can't be changed: make a new table, and "
            "write the rows into it"
        )
    return int(columns.get_field_index(name))
