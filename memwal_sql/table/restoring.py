"""Restores: writes the rows of a past state again."""

from __future__ import annotations

from typing import cast

import datafusion
import numpy as np
import pyarrow as pa

from exec_nodes.evolution.project import ByFieldId
from exec_nodes.keys.keys import KeyBatch
from memwal_native import MountedTable
from memwal_sql.arguments import quoted
from memwal_sql.errors import InvalidCallError, UnsupportedError
from memwal_sql.session.errors import memwal_errors
from memwal_sql.session.provider import SqlTable, TableProvider
from memwal_sql.table.handle import TableHandle
from memwal_sql.table.lookups import get_rows
from memwal_sql.table.writing import change
from memwal_sql.write.conditional.resolve import RowChanges
from memwal_sql.write.result import WriteResult


def restore(now: TableHandle, past: TableHandle) -> WriteResult:
    """See `Table.restore`."""
    if past.reads_base_alone:
        raise InvalidCallError(
            f"version {past.version} has no record of its regions, so its rows are unknown: "
            "restore one that has (recorded_regions in table.history()), or a checkpoint"
        )
    columns = ByFieldId(past.stored_schema, now.tracker.latest_verified().stored)
    return change(now, _Difference(now, past, columns).read, now.schema)


class _Difference:
    """The changes that give the current table the rows of an earlier version."""

    def __init__(self, now: TableHandle, past: TableHandle, columns: ByFieldId) -> None:
        self._now = now
        self._past = past
        self._columns = columns
        self._schema = now.schema
        self._names = {name: self._columns.stored_names[name] for name in self._schema.names}
        lacking = [
            field.name
            for field in self._schema
            if self._names[field.name] is None and not field.nullable
        ]
        if lacking:
            raise UnsupportedError(f"the version does not have the required columns {lacking}")

    def read(self, keys: pa.Table | None) -> RowChanges:
        """The rows to write, for all keys or some."""
        if keys is None:
            return self._all()
        then = keys.rename_columns(list(self._past.primary_key))
        rows = self._as_now(get_rows(self._past, then))
        present = frozenset(KeyBatch(rows.select(keys.column_names)).values)
        gone = [key not in present for key in KeyBatch(keys).values]
        return RowChanges(rows, keys.filter(pa.array(np.array(gone, np.bool_))))

    def _all(self) -> RowChanges:
        context = datafusion.SessionContext()
        for name, table in (("past", self._past), ("now", self._now)):
            context.register_table(name, MountedTable(TableProvider(None, cast(SqlTable, table))))
        pairs = zip(self._past.primary_key, self._now.primary_key, strict=True)
        keys = [(quoted(then), quoted(now)) for then, now in pairs]
        same_key = " AND ".join(f"past.{then} = now.{now}" for then, now in keys)
        differs = " OR ".join([f"now.{keys[0][1]} IS NULL", *map(self._differs, self._schema)])
        with memwal_errors():
            upserts = context.sql(
                f"SELECT past.* FROM past LEFT JOIN now ON {same_key} WHERE {differs}"  # noqa: S608
            ).to_arrow_table()
            chosen = ", ".join(f"now.{now}" for _, now in keys)
            deletes = context.sql(
                f"SELECT {chosen} FROM now LEFT ANTI JOIN past ON {same_key}"  # noqa: S608
            ).to_arrow_table()
        key_schema = pa.schema([self._schema.field(name) for name in self._now.primary_key])
        return RowChanges(self._as_now(upserts.cast(self._past.schema)), deletes.cast(key_schema))

    def _differs(self, field: pa.Field) -> str:
        now, then = f"now.{quoted(field.name)}", self._names[field.name]
        if then is None:
            return f"({now} IS NOT NULL)"
        if self._past.schema.field(then).type != field.type:
            return "true"  # fields inside it have other names
        return f"(past.{quoted(then)} IS DISTINCT FROM {now})"

    def _as_now(self, rows: pa.Table) -> pa.Table:
        columns = [
            pa.nulls(len(rows), field.type)
            if (then := self._names[field.name]) is None
            else self._columns.column(field.name, rows[then]).cast(field.type)
            for field in self._schema
        ]
        return pa.Table.from_arrays(columns, schema=self._schema)
