"""The meaning of a distributed write's batch: upserts, deletes, and the order among equal keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import is_json, is_text
from exec_nodes.arrow.casts import same_kind
from exec_nodes.arrow.struct_fields import check_type
from exec_nodes.arrow.validate import validated
from exec_nodes.keys.codes import repeated_later
from exec_nodes.keys.keys import key_column
from memwal_sql.errors import InvalidCallError
from memwal_sql.write.ingest.missing import ERROR, NULL, check_missing, missing_columns
from memwal_sql.write.ingest.normalise import Normaliser
from planner.model import TableInfo

ORDER = "_order"


@dataclass(frozen=True, slots=True)
class RowForm:
    """How rows are to be read.

    Attributes:
        order_by: of rows with the same key the one with the highest value here wins; None: the last
            of one task, and two tasks must not have the same key.
        delete_column: a boolean column that is true in rows that delete their key.
        deletes: every row deletes its key; only the key columns are needed.
        missing: what becomes of columns that rows to upsert lack: `"error"` or `"null"`.
    """

    order_by: str | None = None
    delete_column: str | None = None
    deletes: bool = False
    missing: str = ERROR

    def check(self, schema: pa.Schema, info: TableInfo) -> None:
        """Raise InvalidCallError, naming the column, where `schema`'s rows can't be written."""
        for name, option in ((self.order_by, "orderBy"), (self.delete_column, "deleteColumn")):
            if name is not None and name not in schema.names:
                raise InvalidCallError(
                    f"{option}={name!r} is not a column of the rows: they have {schema.names}"
                )
        if self.deletes and self.delete_column is not None:
            raise InvalidCallError(
                'operation="delete" deletes every row\'s key: leave deleteColumn out'
            )
        if self.delete_column is not None:
            kind = schema.field(self.delete_column).type
            if not pa.types.is_boolean(kind):
                raise InvalidCallError(
                    f"deleteColumn={self.delete_column!r} is {kind}: it must be boolean"
                )
        names = info.primary_key if self.deletes else info.schema.names
        for name in names:
            if name in schema.names:
                self._check_type(schema.field(name), info.schema.field(name))
            elif name in info.primary_key or not info.schema.field(name).nullable:
                raise InvalidCallError(
                    f"the column {name!r} ({info.schema.field(name).type}) is missing: the rows "
                    f"have {schema.names}"
                )
        check_missing(self.missing)
        lacking = [name for name in names if name not in schema.names]
        if lacking and self.missing == ERROR:
            raise missing_columns("the rows lack", lacking)
        own_columns = {self.order_by, self.delete_column}
        unknown = [n for n in schema.names if n not in info.schema.names and n not in own_columns]
        if unknown:
            raise InvalidCallError(
                f"the table has no columns {unknown}: drop or rename them; "
                f"it has {info.schema.names}"
            )

    def _check_type(self, source: pa.Field, field: pa.Field) -> None:
        is_json_text = is_json(field.type) and is_text(source.type)
        if not is_json_text and not same_kind(source.type, field.type):
            raise InvalidCallError(
                f"the column {field.name!r} is {source.type}, and {field.type} in the table: "
                "cast it first"
            )
        check_type(source.type, field, fill=self.missing == NULL)


class RowReader:
    """Turns batches of the caller's columns into batches of a MemTable's, `_order` last if rows
    are ordered."""

    def __init__(self, form: RowForm, info: TableInfo) -> None:
        self._form = form
        self._info = info
        self._normaliser = Normaliser(info.schema, info.primary_key)

    def read(self, table: pa.Table) -> pa.RecordBatch:
        """The rows in their order. Raises InvalidCallError naming a value that does not fit."""
        form = self._form
        if form.deletes:
            rows = self._normaliser.tombstones(table.select(self._info.primary_key))
        elif form.delete_column is None:
            rows = self._upserts(table)
        else:
            rows = self._mixed(table, form.delete_column)
        if form.order_by is None:
            return rows
        order = validated(table[form.order_by], form.order_by)
        if order.null_count:
            raise InvalidCallError(
                f"orderBy={form.order_by!r}: {order.null_count} rows have a null in it, which "
                "has no place in an order"
            )
        return rows.append_column(pa.field(ORDER, order.type), _one(order))

    def _upserts(self, table: pa.Table) -> pa.RecordBatch:
        names = [name for name in table.column_names if name in self._info.schema.names]
        return self._normaliser.upserts(table.select(names), self._form.missing)

    def _mixed(self, table: pa.Table, column: str) -> pa.RecordBatch:
        deleted = pc.fill_null(table[column], False).to_numpy()
        if not deleted.any():
            return self._upserts(table)
        gone, kept = np.flatnonzero(deleted), np.flatnonzero(~deleted)
        keys = table.select(self._info.primary_key).take(pa.array(gone))
        parts = [self._upserts(table.take(pa.array(kept))), self._normaliser.tombstones(keys)]
        both = pa.concat_batches(parts)
        return both.take(pa.array(np.argsort(np.concatenate([kept, gone]), kind="stable")))


def newest(table: pa.Table, primary_key: tuple[str, ...]) -> pa.Table:
    """Every key once: of equal keys the one with the highest `_order`, or the last."""
    if ORDER in table.column_names:
        table = table.take(pc.sort_indices(table, sort_keys=[(ORDER, "ascending")]))
    repeated = repeated_later(key_column(table.select(primary_key).columns))
    if not len(repeated):
        return table
    kept = np.ones(table.num_rows, np.bool_)
    kept[repeated] = False
    return table.filter(pa.array(kept))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
