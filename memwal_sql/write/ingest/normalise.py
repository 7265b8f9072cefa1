"""Turns callers' data into record batches of the table's schema. Everything is checked before
anything is written: rows that pass can be stored. Specification 2, "Write Operations", step 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import is_json, is_list
from exec_nodes.arrow.casts import exact_cast
from exec_nodes.arrow.input_rows import FORMS, input_rows, object_columns
from exec_nodes.arrow.large_columns import concatenated
from exec_nodes.arrow.nested import inner_fields
from exec_nodes.arrow.python_values import exact_values
from exec_nodes.arrow.row_stream import RowStream, opened
from exec_nodes.arrow.struct_fields import check_values, has_structs
from exec_nodes.arrow.validate import Column, first_row, validated
from exec_nodes.base.brief import names_text
from exec_nodes.keys.keys import as_key_table
from memwal_sql.errors import InvalidCallError
from memwal_sql.state.defaults import stored_defaults
from memwal_sql.state.memtable import memtable_schema
from memwal_sql.write.ingest.change_codes import DELETE, UPSERT
from memwal_sql.write.ingest.changes import Changes
from memwal_sql.write.ingest.debezium import NO_FORMS, TextForms
from memwal_sql.write.ingest.files import is_json_file, json_array, json_lists, opened_file
from memwal_sql.write.ingest.json_texts import stored_json
from memwal_sql.write.ingest.missing import (
    ERROR,
    KEEP,
    NULL,
    check_missing,
    missing_columns,
    ragged_row,
)

Rows: TypeAlias = pa.Table | pa.RecordBatch | RowStream

_MARKS = {tombstone: pa.scalar(tombstone) for tombstone in (False, True)}


# Rows of nulls by which one is measured: bits and the ends of offsets hardly count.
_SAMPLE = 64


class Normaliser:
    """Makes batches for the MemTables of one table: its columns, then `_tombstone`.

    Attributes:
        defaults: the defaults of columns.
        row_bytes: the size of a row of nulls.
    """

    def __init__(
        self,
        schema: pa.Schema,
        primary_key: Sequence[str],
        values: Callable[..., Column] = exact_values,
    ) -> None:
        """`values` puts a caller's values into a column's type, see `exact_values`."""
        self._schema = schema
        self._values = values
        self._primary_key = tuple(primary_key)
        self._names = frozenset(schema.names)
        # Required columns: name -> position, in the order of the schema.
        self._required = {
            field.name: position
            for position, field in enumerate(schema)
            if field.name in primary_key or not field.nullable
        }
        self._required_inside = [
            position for position, field in enumerate(schema) if has_required_fields(field.type)
        ]
        self._structs_inside = {field.name for field in schema if has_structs(field.type)}
        self._json = [position for position, field in enumerate(schema) if is_json(field.type)]
        self._target = memtable_schema(schema)
        self.defaults = stored_defaults(schema)
        self.row_bytes = sum(pa.nulls(_SAMPLE, f.type).nbytes for f in schema) // _SAMPLE
        self._has_structs = any(pa.types.is_struct(field.type) for field in schema)

    def upserts(self, data: Any, missing: str = ERROR, *, new: bool = False) -> pa.RecordBatch:
        """Rows to insert or replace.

        Types are cast if no value changes; columns that the rows lack are an error, or null if
        `missing` is `"null"`, or, if it is `"keep"`, which is for `new` rows only, have their
        default or null. Raises InvalidCallError naming the column and the value.
        """
        check_missing(missing, *([KEEP] if new else []))
        if isinstance(data, pa.RecordBatch) and data.schema.equals(self._schema):
            return self._checked(self._validated(data.columns))
        table = self._table(data, missing)
        if missing == KEEP and table.num_columns:
            for name in self.defaults.keys() - set(table.column_names):
                column = pa.repeat(self.defaults[name], table.num_rows)
                table = table.append_column(self._schema.field(name), column)
        return self._checked(self._columns(table, missing))

    def arrow_rows(self, data: Any, missing: str = KEEP) -> Rows:
        """The rows as Arrow data, for `upserts` and `partial`. All rows have the same columns;
        InvalidCallError names a row with others."""
        check_missing(missing, KEEP)
        if isinstance(data, pa.RecordBatch) and data.schema.equals(self._schema):
            return data
        rows = opened(self._source(data, missing))
        return rows if isinstance(rows, RowStream) else self._table(rows, missing)

    def opened_changes(self, data: Any) -> tuple[Normaliser, Any]:
        """A stream, lists of a file of JSON, or anything else as it is, and whose `changes` takes
        it."""
        if is_json_file(data):
            return Normaliser(self._schema, self._primary_key, json_array), json_lists(data)
        return self, opened(self._source(data))

    def lacks_columns(self, rows: Rows) -> bool:
        """Whether rows that `arrow_rows` returned lack columns of the table."""
        return not self._names <= set(rows.schema.names)

    def partial(self, rows: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
        """Rows in memory that `arrow_rows` returned, in their columns, which include the key, and
        in the table's types. `upserts` makes the other checks."""
        names = rows.schema.names
        self._check_names(names)
        self._check_key(names)
        arrays = []
        for name, column in zip(names, rows.columns, strict=True):
            array = _single_chunk(validated(exact_cast(column, self._schema.field(name)), name))
            if name in self._primary_key:
                self._check_null(array, name)
            if is_json(array.type):
                array = stored_json(array, name)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def changes(self, data: Any, op: str, forms: TextForms = NO_FORMS) -> pa.RecordBatch:
        """Upserts, as `upserts` takes them, and tombstones in the order of the rows, which have a
        column `op`; see `memwal_sql.write.ingest.changes`. Only the key of deletes is read."""
        changes = self.changes_of(data, op, forms)
        places = [changes.places(kind) for kind in (UPSERT, DELETE)]
        batches = [pa.RecordBatch.from_pylist([], self._target)]
        if len(places[0]):
            batches.append(self.upserts(changes.rows(UPSERT)))
        if len(places[1]):
            batches.append(self.tombstones(changes.rows(DELETE)))
        order = np.argsort(np.concatenate(places), kind="stable")
        return concatenated(batches).take(pa.array(order))

    def changes_of(self, data: Any, op: str, forms: TextForms) -> Changes:
        """The rows of a stream of changes. Raises InvalidCallError."""
        return Changes(data, op, self._schema, self._primary_key, forms)

    def _columns(self, table: pa.Table, missing: str) -> list[pa.Array]:
        fits = table.schema.equals(self._schema)
        fitted = self._validated(table.columns) if fits else self._fit(table, missing)
        return [_single_chunk(column) for column in fitted]

    def _checked(self, columns: list[pa.Array]) -> pa.RecordBatch:
        for name, position in self._required.items():
            self._check_null(columns[position], name)
        for position in self._required_inside:
            check_required_fields(columns[position], self._schema.names[position])
        for position in self._json:
            columns[position] = stored_json(columns[position], self._schema.names[position])
        if self._has_structs:
            columns = [with_null_children(column) for column in columns]
        return self._batch(columns, tombstone=False)

    def keys(self, keys: Any) -> pa.Table:
        """The keys that `tombstones` takes, as a table. Raises InvalidCallError."""
        if isinstance(keys, PathLike):  # a text may be a key
            normaliser, keys = self.opened_changes(keys)
            if normaliser is not self:
                return normaliser.keys(list(chain.from_iterable(keys)))
        if self._values is not exact_values:
            keys = self._key_columns(keys)
        return as_key_table(keys, self._schema, self._primary_key)

    def _key_columns(self, rows: Sequence[Any]) -> dict[str, Column]:
        """The key columns that dicts have, in the table's types."""
        if not all(isinstance(row, Mapping) for row in rows):
            raise InvalidCallError("a row of JSON is an object: give the columns of the key")
        names = {name for row in rows for name in row} if rows else self._names
        return {
            name: self._values([row.get(name) for row in rows], self._schema.field(name))
            for name in self._primary_key
            if name in names
        }

    def tombstones(self, keys: Any) -> pa.RecordBatch:
        """Rows that delete `keys`: the key columns are set, the others null, or a placeholder in a
        column that is not nullable. Raises InvalidCallError naming the value."""
        table = self.keys(keys)
        columns = []
        for field in self._schema:
            if field.name in self._primary_key:
                columns.append(table[field.name])
            elif field.nullable:
                columns.append(pa.nulls(table.num_rows, field.type))
            else:
                columns.append(_placeholders(field.type, table.num_rows))
        key_table = pa.Table.from_arrays(columns, schema=self._schema)
        return self._batch([_single_chunk(column) for column in key_table.columns], tombstone=True)

    def _table(self, data: Any, missing: str) -> pa.Table:
        rows = input_rows(self._source(data, missing))
        if isinstance(rows, pa.Table):
            if self._structs_inside:
                self._check_objects(data, missing)
            return rows
        if isinstance(rows, Mapping):
            return self._from_columns(dict(rows), missing)
        if rows is None:
            raise InvalidCallError(f"{type(data).__name__} is not a set of rows: pass {FORMS}")
        names = dict.fromkeys(name for row in rows for name in row)
        if rows and not names:
            raise InvalidCallError(
                f"row 0 lacks the primary key columns {list(self._primary_key)}: it is empty"
            )
        short = next((at for at, row in enumerate(rows) if len(row) < len(names)), None)
        if short is not None and missing != NULL:
            lacking = names.keys() - rows[short].keys()
            raise ragged_row(short, self._in_order(lacking), missing)
        return self._from_columns({n: [row.get(n) for row in rows] for n in names}, missing)

    def _source(self, data: Any, missing: str = KEEP) -> Any:
        """The rows of a file, given its path; other data as it is."""
        if isinstance(data, str | PathLike):
            return opened_file(data, self._schema, missing)
        return data

    def _check_objects(self, data: Any, missing: str) -> None:
        """Check the structs of a pandas frame, which Arrow all gives the same fields."""
        for name, values in object_columns(data).items():
            if name in self._structs_inside:
                check_values(values, self._schema.field(name), fill=missing == NULL)

    def _from_columns(self, columns: dict[str, Any], missing: str) -> pa.Table:
        self._check_names(list(columns))
        fill = missing == NULL
        arrays = [
            self._values(values, self._schema.field(name), fill=fill)
            for name, values in columns.items()
        ]
        if len({len(array) for array in arrays}) > 1:
            lengths = {name: len(a) for name, a in zip(columns, arrays, strict=True)}
            raise InvalidCallError(f"columns must be equally long, not {lengths}")
        if not columns:  # no rows: their columns are unknown, and none is missing
            return self._schema.empty_table()
        return pa.Table.from_arrays(arrays, names=list(columns))

    def _validated(self, columns: Sequence[Column]) -> list[Column]:
        return [validated(c, name) for c, name in zip(columns, self._schema.names, strict=True)]

    def _fit(self, table: pa.Table, missing: str) -> list[Column]:
        names = table.column_names
        self._check_names(names)
        by_name = dict(zip(names, table.columns, strict=True))
        left_out = self._names - by_name.keys()
        if missing == ERROR and left_out and self._required.keys() <= by_name.keys():
            raise missing_columns("the rows lack", self._in_order(left_out))
        columns: list[Column] = []
        for field in self._schema:
            if field.name in by_name:
                columns.append(exact_cast(by_name[field.name], field, fill=missing == NULL))
            elif field.name in self._required:
                kind = "primary key" if field.name in self._primary_key else "required"
                raise InvalidCallError(
                    f"the {kind} column {field.name!r} ({field.type}) is missing; there are "
                    f"{names_text(names)}"
                )
            else:
                columns.append(pa.nulls(table.num_rows, field.type))
        return columns

    def _in_order(self, names: Collection[str]) -> list[str]:
        return [name for name in self._schema.names if name in names] or sorted(names)

    def _check_names(self, names: list[str]) -> None:
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise InvalidCallError(f"the columns {names_text(twice)} occur more than once")
        unknown = [name for name in names if name not in self._names]
        if unknown:
            raise InvalidCallError(
                f"the table has no columns {names_text(unknown)}: drop or rename them; "
                f"it has {self._schema.names}"
            )

    def _check_null(self, column: pa.Array, name: str) -> None:
        if column.null_count:
            row = pc.index(pc.is_null(column), True).as_py()
            kind = "primary key" if name in self._primary_key else "not nullable"
            raise InvalidCallError(
                f"column {name!r} is {kind}, but row {row} has a null in it: fill it in"
            )

    def _check_key(self, names: Sequence[str]) -> None:
        for name in self._primary_key:
            if name not in names:
                kind = self._schema.field(name).type
                raise InvalidCallError(
                    f"the primary key column {name!r} ({kind}) is missing; there are "
                    f"{names_text(names)}"
                )

    def _batch(self, columns: Sequence[pa.Array], *, tombstone: bool) -> pa.RecordBatch:
        marks = pa.repeat(_MARKS[tombstone], len(columns[0]))
        return pa.RecordBatch.from_arrays([*columns, marks], schema=self._target)


def _single_chunk(column: Column) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    try:
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    except pa.ArrowInvalid as error:  # beyond 32-bit offsets
        raise InvalidCallError(
            f"a column of {column.nbytes} bytes is too large for one call: write fewer rows at once"
        ) from error


def _placeholders(kind: pa.DataType, rows: int) -> pa.Array:
    """Values for a type that is not nullable, zero or empty; nobody reads them."""
    if isinstance(kind, pa.BaseExtensionType):
        if is_json(kind):
            return pa.repeat(pa.scalar("null", kind.storage_type), rows).cast(kind)
        return kind.wrap_array(_placeholders(kind.storage_type, rows))
    if pa.types.is_dictionary(kind):
        first = _placeholders(kind.index_type, rows)
        return pa.DictionaryArray.from_arrays(
            first, _placeholders(kind.value_type, 1), ordered=kind.ordered
        )
    if pa.types.is_struct(kind):
        parts = [_placeholders(field.type, rows) for field in kind]
        return pa.Array.from_buffers(kind, rows, [None], children=parts)
    if pa.types.is_fixed_size_list(kind):
        inner = _placeholders(kind.value_type, rows * kind.list_size)
        return pa.Array.from_buffers(kind, rows, [None], children=[inner])
    if is_list(kind) or pa.types.is_map(kind):
        width = 8 if pa.types.is_large_list(kind) else 4
        offsets = pa.py_buffer(bytes((rows + 1) * width))
        inner = pa.nulls(0, kind.field(0).type)
        return pa.Array.from_buffers(kind, rows, [None, offsets], children=[inner])
    # Nulls are stored as zeros: without the bitmap, they are values.
    _, *zeros = pa.nulls(rows, kind).buffers()
    return pa.Array.from_buffers(kind, rows, [None, *zeros])


def with_null_children(column: pa.Array) -> pa.Array:
    """A column in which no child of a struct has a value where the struct is NULL.

    Nested structs are treated in the same way. A child that is not nullable keeps its values. Arrow
    does not define children of a NULL struct, and DataFusion reads them unchanged; Lance does not
    store them, so a row would read differently once its MemTable is flushed.
    """
    if not pa.types.is_struct(column.type):
        return column
    fields = list(column.type)
    masked = column.flatten()
    children = [
        with_null_children(masked[place] if field.nullable else column.field(place))
        for place, field in enumerate(fields)
    ]
    return pa.StructArray.from_arrays(children, fields=fields, mask=column.is_null())


def has_required_fields(kind: pa.DataType) -> bool:
    """Whether some field inside a type is not nullable. Keys of maps are left to Arrow."""
    fields = inner_fields(kind)
    required = fields[1:] if pa.types.is_map(kind) else fields
    return any(not field.nullable for field in required) or any(
        has_required_fields(field.type) for field in fields
    )


def check_required_fields(column: pa.Array, name: str) -> None:
    """Raise InvalidCallError naming the row of a NULL in a field that is not nullable.

    Values below a NULL struct or list do not count. Arrow lets arrays have such NULLs, but Lance
    does not write them: the MemTable could never be flushed.
    """
    path = _null_in(column)
    if path is not None:
        row = first_row(column, lambda part: _null_in(part) is None)
        raise InvalidCallError(
            f"column {name!r}: the field {path!r} inside it is not nullable, but row {row} has a "
            "null in it: fill it in"
        )


def _null_in(array: pa.Array) -> str | None:
    """The path of a field that is not nullable and has a NULL."""
    if array.null_count:
        array = array.drop_null()
    if not len(array):
        return None
    for field, part in zip(inner_fields(array.type), _parts(array), strict=True):
        if not field.nullable and part.null_count:
            return str(field.name)
        deeper = _null_in(part)
        if deeper is not None:
            return f"{field.name}.{deeper}"
    return None


def _parts(array: pa.Array) -> list[pa.Array]:
    """The arrays of `inner_fields`, as far as `array` shows them: some rows without NULLs."""
    if pa.types.is_struct(array.type):
        return list(array.flatten())
    if pa.types.is_map(array.type):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return list(array.values.slice(first, last - first).flatten())
    return [array.flatten()] if inner_fields(array.type) else []
