"""DELETE, UPDATE and TRUNCATE: a SELECT of the rows that they change, made of the user's text.

The SELECT finds the keys to delete, or whole new rows; the writer writes them only if nobody else
wrote these keys meanwhile, and asks again for those that somebody did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import datafusion
import numpy as np
import pyarrow as pa
from datafusion import functions as f

from exec_nodes.keys.keys import KeyBatch
from memwal_sql.errors import UnsupportedError
from memwal_sql.session.front.queries.one_snapshot import WritableTable, frame
from memwal_sql.session.front.queries.planning import planning_errors
from memwal_sql.session.front.queries.tokens import Statement, quoted
from memwal_sql.session.table_functions import TableName, search_functions, whole_name
from memwal_sql.write.conditional.resolve import RowChanges

_PARTS = 3
# What other databases take at the end of such a statement.
_REFUSED = ("RETURNING", "ORDER BY", "LIMIT")
_AFTER_NAME = {"SET", "FROM", "USING", "WHERE", "RETURNING", "ORDER", "LIMIT"}


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """A statement that changes rows of a table.

    Attributes:
        select: finds the keys to delete, or the new rows.
        deletes: whether it deletes.
    """

    name: TableName
    table: WritableTable
    select: str
    deletes: bool

    def run(self, ctx: datafusion.SessionContext, parameters: Mapping[str, Any]) -> int:
        """Change the rows, durably, and return how many there were."""
        columns = self.table.schema

        def read(keys: pa.Table | None) -> RowChanges:
            found = frame(ctx, self.select, parameters, strong=self.name)
            with planning_errors():
                rows = (found if keys is None else _near(found, keys)).to_arrow_table()
            if keys is not None:
                rows = _of_keys(rows, keys)
            return RowChanges(deletes=rows) if self.deletes else RowChanges(upserts=rows)

        return self.table.change(read, columns).rows


def changed_rows(ctx: datafusion.SessionContext, statement: Statement) -> ChangedRows | None:
    """The statement, if it is a DELETE, UPDATE or TRUNCATE of a table of ours.

    Raises InvalidCallError and UnsupportedError, with the place, for what it can't be.
    """
    kind = statement.keyword(0)
    place = {"DELETE": 2, "UPDATE": 1, "TRUNCATE": 2 if statement.has(1, "TABLE") else 1}.get(kind)
    if place is None or (kind == "DELETE" and not statement.has(1, "FROM")):
        return None
    parts, after = statement.table(place)
    found = search_functions(ctx).table(whole_name(parts), ctx) if len(parts) <= _PARTS else None
    if found is None:
        return None
    name, table = whole_name(parts), cast(WritableTable, found[0])
    target = statement.slice(place, after)
    if kind == "TRUNCATE":
        if after < len(statement):
            raise statement.error("TRUNCATE takes the name of one table alone", after)
        return ChangedRows(name, table, _keys(table, target, parts, "", ""), deletes=True)
    alias, clauses = _alias(statement, after)
    refused = statement.first(_REFUSED, clauses)
    if refused < len(statement):
        raise UnsupportedError(str(statement.error(f"{kind} can't have this clause", refused)))
    qualifier = quoted(alias) if alias is not None else quoted(parts[-1])
    source = target if alias is None else f"{target} AS {qualifier}"
    where = statement.find("WHERE", clauses)
    condition = statement.slice(where, len(statement))
    if kind == "DELETE":
        others = _others(statement, clauses, where, "USING")
        select = _keys(table, source, (qualifier,), others, condition)
        return ChangedRows(name, table, select, deletes=True)
    start = statement.expect(clauses, "SET")
    end = statement.find("FROM", start, where)
    while statement.keyword(end - 1) == "DISTINCT":  # a IS DISTINCT FROM b
        end = statement.find("FROM", end + 1, where)
    others = _others(statement, end, where, "FROM")
    values = _assignments(statement, start, end, table, (alias, *parts))
    chosen = (values.get(one, f"{qualifier}.{quoted(one)}") for one in table.schema.names)
    shown = ", ".join(
        f"{value} AS {quoted(one)}" for one, value in zip(table.schema.names, chosen, strict=True)
    )
    select = f"SELECT {shown} FROM {source}{others} {condition}"  # noqa: S608, the user's own text
    return ChangedRows(name, table, select, deletes=False)


def _keys(
    table: WritableTable, source: str, parts: Sequence[str], others: str, condition: str
) -> str:
    qualifier = parts[-1] if parts[-1].startswith('"') else quoted(parts[-1])
    keys = ", ".join(f"{qualifier}.{quoted(one)} AS {quoted(one)}" for one in table.primary_key)
    return f"SELECT DISTINCT {keys} FROM {source}{others} {condition}"  # noqa: S608, as above


def _alias(statement: Statement, place: int) -> tuple[str | None, int]:
    """The other name that a statement gives its table, and the place after it."""
    if statement.keyword(place) == "AS":
        place += 1
    elif place >= len(statement) or statement.keyword(place) in _AFTER_NAME:
        return None, place
    if place >= len(statement) or not statement.tokens[place].is_name:
        raise statement.error("a clause or another name of the table must stand here", place)
    return statement.tokens[place].name, place + 1


def _others(statement: Statement, place: int, stop: int, word: str) -> str:
    """The tables that the rows are compared with, as a further part of FROM."""
    if place == stop:
        return ""
    after = statement.expect(place, word)
    if after == stop:
        raise statement.error("a table is missing", after)
    return f", {statement.slice(after, stop)}"


def _assignments(
    statement: Statement, start: int, end: int, table: WritableTable, names: Sequence[str | None]
) -> dict[str, str]:
    values: dict[str, str] = {}
    for first, last in statement.split(start, end):
        parts, after = statement.table(first)
        column = parts[-1]
        if len(parts) > 1 and parts[-2] not in names:
            raise statement.error(f"{parts[-2]!r} is not the table that is updated", first)
        if column not in table.schema.names:
            raise statement.error(f"the table has {table.schema.names}, and not this column", first)
        if column in table.primary_key:
            raise statement.error(
                "a column of the primary key can't be set: insert a row with the new key and "
                "delete the old one",
                first,
            )
        if column in values:
            raise statement.error("this column is set twice", first)
        if statement.symbol(after) != "=" or after + 1 >= last:
            raise statement.error("`= value` must follow the column", after)
        values[column] = f"({statement.slice(after + 1, last)})"
    if not values:
        raise statement.error("there is no column to set", start)
    return values


def _near(found: datafusion.DataFrame, keys: pa.Table) -> datafusion.DataFrame:
    """The rows whose key columns have values that keys have in them, some more than these keys."""
    for name in keys.column_names:
        values = [datafusion.lit(one) for one in keys[name].unique()]
        found = found.filter(f.in_list(datafusion.col(quoted(name)), values))
    return found


def _of_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    wanted = frozenset(KeyBatch(keys).values)
    of_rows = KeyBatch(rows.select(keys.column_names).cast(keys.schema)).values
    return rows.filter(pa.array(np.fromiter((k in wanted for k in of_rows), np.bool_, len(rows))))
