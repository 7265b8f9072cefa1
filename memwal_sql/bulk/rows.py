"""The meaning of a distributed write's batch: upserts, deletes, the order among equal keys, and
when a row replaces the one that the table has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import is_json, is_text
from exec_nodes.arrow.casts import same_kind
from exec_nodes.arrow.struct_fields import check_type
from exec_nodes.arrow.validate import validated
from exec_nodes.keys.codes import KeyCodes, repeated_later
from exec_nodes.keys.keys import KeyColumn, key_column
from memwal_sql.arguments import quoted
from memwal_sql.errors import InvalidCallError
from memwal_sql.write.conditional.expressions import Expressions, pairs
from memwal_sql.write.conditional.groups import named, whole
from memwal_sql.write.ingest.missing import ERROR, KEEP, NULL, check_missing
from memwal_sql.write.ingest.normalise import Normaliser
from planner.model import TableInfo

# Columns beside those of staged rows: what orders them, and a struct of what the condition names.
ORDER = "_order"
GIVEN = "_given"

LAST: Final = "last"
DUPLICATES = (ERROR, LAST)
_SHOWN_KEYS = 3


@dataclass(frozen=True, slots=True)
class RowForm:
    """How rows are to be read.

    Attributes:
        order_by: of rows with the same key the one with the highest value here wins.
        delete_column: a boolean column that is true in rows that delete their key.
        deletes: every row deletes its key; only the key columns are needed.
        missing: what becomes of columns that rows to upsert lack: `"error"`, `"null"`, or `"keep"`,
            by which existing rows keep their values and new ones get the default or null.
        duplicates: what becomes of rows with the same key that nothing orders: `"error"`, or
            `"last"`, by which the last one of a task wins. Two tasks must not have the same key.
        when: a condition over the table's row, `t`, and the given one, `s`: a row replaces or
            deletes an existing one only where it is true.
        changes: whether the rows are changes of a statement, as `memwal_sql.bulk.changes` has them.
    """

    order_by: str | None = None
    delete_column: str | None = None
    deletes: bool = False
    missing: str = ERROR
    duplicates: str = ERROR
    when: str | None = None
    changes: bool = False

    def over(self, info: TableInfo) -> RowForm:
        """The form with its condition spelt out, None if it is true: without one, rows that are
        ordered by a column of the table replace those that are not newer by it."""
        stored = self.order_by in info.schema.names and self.order_by not in info.primary_key
        if self.when is not None or self.order_by is None or not stored:
            return replace(self, when=None) if _is_true(self.when) else self
        name = quoted(self.order_by)
        return replace(self, when=f"t.{name} IS NULL OR t.{name} <= s.{name}")

    def named(self, side: str, columns: Sequence[str]) -> list[str]:
        """Those of the columns that the condition names of a side, `t` or `s`."""
        if self.when is None:
            return []
        return list(columns) if side in whole([self.when]) else named(columns, [self.when])

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
        check_missing(self.missing, KEEP)
        lacking = [name for name in names if name not in schema.names]
        if lacking and self.missing == ERROR:
            raise InvalidCallError(
                f"the rows lack the columns {lacking} of the table: give every column, or "
                'option("missing", "keep"), with which existing rows keep their values, or '
                'missing="null" to set these to null'
            )
        own_columns = {self.order_by, self.delete_column}
        unknown = [n for n in schema.names if n not in info.schema.names and n not in own_columns]
        if unknown:
            raise InvalidCallError(
                f"the table has no columns {unknown}: drop or rename them, or add them with "
                f'option("mergeSchema", "true"); it has {info.schema.names}'
            )
        self._check_condition(schema, info)

    def _check_condition(self, schema: pa.Schema, info: TableInfo) -> None:
        form = self.over(info)
        if form.when is None:
            return
        given = pa.schema([field for field in info.schema if field.name in schema.names])
        sides = pairs(*(pa.RecordBatch.from_pylist([], side) for side in (info.schema, given)))
        Expressions(info.schema, form.when, {}).evaluate(sides)

    def _check_type(self, source: pa.Field, field: pa.Field) -> None:
        is_json_text = is_json(field.type) and is_text(source.type)
        if not is_json_text and not same_kind(source.type, field.type):
            raise InvalidCallError(
                f"the column {field.name!r} is {source.type}, and {field.type} in the table: "
                "cast it first"
            )
        check_type(source.type, field, fill=self.missing == NULL)


def _is_true(condition: str | None) -> bool:
    return condition is not None and condition.strip().lower() == "true"


class RowReader:
    """Turns batches of the caller's columns into batches of a MemTable's, then `_order` if rows are
    ordered, and `_given` if they have a condition."""

    def __init__(self, form: RowForm, info: TableInfo) -> None:
        """`form` is spelt out for the table."""
        self._form = form
        self._info = info
        self._normaliser = Normaliser(info.schema, info.primary_key)

    def read(self, table: pa.Table) -> pa.RecordBatch:
        """The rows in their order. Raises InvalidCallError naming a value that does not fit."""
        form = self._form
        self._check_keys(table)
        if form.deletes:
            rows = self._normaliser.tombstones(table.select(self._info.primary_key))
        elif form.delete_column is None:
            rows = self._upserts(table)
        else:
            rows = self._mixed(table, form.delete_column)
        if form.order_by is not None:
            order = validated(table[form.order_by], form.order_by)
            if order.null_count:
                raise InvalidCallError(
                    f"orderBy={form.order_by!r}: {order.null_count} rows have a null in it, which "
                    "has no place in an order"
                )
            rows = rows.append_column(pa.field(ORDER, order.type), _one(order))
        if form.when is not None:
            given = self._given(table)
            rows = rows.append_column(pa.field(GIVEN, given.type), given)
        return rows

    def given_columns(self, names: Sequence[str]) -> list[str]:
        """Those of the rows' columns that the table has, too."""
        return [name for name in self._info.schema.names if name in names]

    def _given(self, table: pa.Table) -> pa.StructArray:
        """What the condition may name of the rows, also of those that delete."""
        key = list(self._info.primary_key)
        names = self._form.named("s", self.given_columns(table.column_names)) or key[:1]
        rows = self._normaliser.partial(table.select(list(dict.fromkeys([*key, *names]))))
        return rows.select(names).to_struct_array()

    def _check_keys(self, table: pa.Table) -> None:
        key = self._info.primary_key
        for name in set(key) & set(table.column_names):
            nulls = validated(table[name], name).null_count
            if not nulls:
                continue
            first = pc.index(pc.is_null(table[name]), True).as_py()
            others = table.select([other for other in key if other != name])
            has = f"; the first has {others.slice(first, 1).to_pylist()[0]}" if len(key) > 1 else ""
            raise InvalidCallError(
                f"column {name!r} is primary key, but {nulls} of {table.num_rows} rows that a task "
                f"has read have a null in it{has}: leave them out with "
                f'.where("{name} IS NOT NULL"), also in a stream, whose checkpoint goes on; for '
                f'rows of files .where("{name} IS NULL").select("_metadata.file_path") finds '
                "where they are"
            )

    def _upserts(self, table: pa.Table) -> pa.RecordBatch:
        missing = NULL if self._form.missing == KEEP else self._form.missing
        rows = table.select(self.given_columns(table.column_names))
        return self._normaliser.upserts(rows, missing)

    def _mixed(self, table: pa.Table, column: str) -> pa.RecordBatch:
        deleted = pc.fill_null(table[column], False).to_numpy()
        if not deleted.any():
            return self._upserts(table)
        gone, kept = np.flatnonzero(deleted), np.flatnonzero(~deleted)
        keys = table.select(self._info.primary_key).take(pa.array(gone))
        parts = [self._upserts(table.take(pa.array(kept))), self._normaliser.tombstones(keys)]
        both = pa.concat_batches(parts)
        return both.take(pa.array(np.argsort(np.concatenate([kept, gone]), kind="stable")))


def newest(table: pa.Table, primary_key: tuple[str, ...], duplicates: str) -> pa.Table:
    """Every key once: of equal keys the one with the highest `_order`. Of several the last one, or
    InvalidCallError, as `duplicates` says."""
    ordered = ORDER in table.column_names
    if ordered:
        table = table.take(pc.sort_indices(table, sort_keys=[(ORDER, "ascending")]))
    keys = key_column(table.select(primary_key).columns)
    repeated = repeated_later(keys)
    if not len(repeated):
        return table
    if duplicates == ERROR:
        _check_ties(table, primary_key, keys, ordered)
    kept = np.ones(table.num_rows, np.bool_)
    kept[repeated] = False
    return table.filter(pa.array(kept))


def _check_ties(
    table: pa.Table, primary_key: tuple[str, ...], keys: KeyColumn, ordered: bool
) -> None:
    """Raise InvalidCallError for rows of the same key that nothing orders, of rows in order."""
    codes = KeyCodes(keys).codes
    order = np.argsort(codes, kind="stable")  # rows of a key stand together, in their order
    is_last = np.diff(codes[order], append=-1) != 0
    later = np.flatnonzero(~is_last)
    if ordered:
        ranks = pc.rank(table[ORDER], tiebreaker="dense").to_numpy()[order]
        later = later[is_last[later + 1] & (ranks[later] == ranks[later + 1])]
    if len(later):
        rows = table.select(primary_key).take(pa.array(order[later[:_SHOWN_KEYS]]))
        raise same_key("a task has several rows", rows.to_pylist()[0], ordered, LAST_OF_TASK)


LAST_OF_TASK = ', or take the last one of its task with option("duplicates", "last")'


def same_key(what: str, key: dict[str, Any], ordered: bool, more: str = "") -> InvalidCallError:
    """The error for rows of a batch that have the same key, and nothing says which one is newer."""
    if ordered:
        return InvalidCallError(
            f"{what} of the key {key} with the same value in the orderBy column: order by a column "
            f"that tells which one is newer{more}"
        )
    return InvalidCallError(
        f"{what} of the key {key}, and nothing says which one is newer: name a column that does "
        f'with option("orderBy", ...), or drop duplicates first{more}'
    )


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
