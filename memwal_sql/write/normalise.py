"""Turning what a caller hands over into record batches of the table's schema.

Everything is checked before anything is written: what passes here can be stored. Specification 2,
"Write Operations", step 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.kernels.arrays import is_list
from exec_nodes.kernels.exact_cast import exact_cast, exact_values
from exec_nodes.kernels.keys import as_key_table
from exec_nodes.kernels.sound import Column, sound
from memwal_sql.errors import InvalidCallError
from memwal_sql.write.json_texts import check_json, is_json
from memwal_sql.write.memtable import memtable_schema
from memwal_sql.write.null_structs import with_null_children
from memwal_sql.write.required_fields import check_required_fields, has_required_fields

_REMEDY = (
    "pass a pyarrow table, batch or reader, a pandas or polars frame, anything with the Arrow C "
    "stream interface, a dict of columns or a list of dicts"
)

_MARKS = {tombstone: pa.scalar(tombstone) for tombstone in (False, True)}


class Normaliser:
    """Makes batches for the MemTables of one table: its columns, then `_tombstone`."""

    def __init__(self, schema: pa.Schema, primary_key: Sequence[str]) -> None:
        self._schema = schema
        self._primary_key = tuple(primary_key)
        self._names = frozenset(schema.names)
        # Their positions by name, in the order of the schema.
        self._required = {
            field.name: position
            for position, field in enumerate(schema)
            if field.name in primary_key or not field.nullable
        }
        self._required_inside = [
            position for position, field in enumerate(schema) if has_required_fields(field.type)
        ]
        self._json = [position for position, field in enumerate(schema) if is_json(field.type)]
        self._target = memtable_schema(schema)
        self._has_structs = any(pa.types.is_struct(field.type) for field in schema)

    def upserts(self, data: Any) -> pa.RecordBatch:
        """Rows to insert or replace.

        Missing nullable columns become null, types are cast where no value changes. Raises
        InvalidCallError naming the column and the value.
        """
        if isinstance(data, pa.RecordBatch) and data.schema.equals(self._schema):
            columns = self._sound(data.columns)
        else:
            table = self._table(data)
            fits = table.schema.equals(self._schema)
            given = self._sound(table.columns) if fits else self._fit(table)
            columns = [_one_chunk(column) for column in given]
        self._check_nulls(columns)
        for position in self._required_inside:
            check_required_fields(columns[position], self._schema.names[position])
        for position in self._json:
            check_json(columns[position], self._schema.names[position])
        if self._has_structs:
            columns = [with_null_children(column) for column in columns]
        return self._batch(columns, tombstone=False)

    def tombstones(self, keys: Any) -> pa.RecordBatch:
        """Rows that delete `keys`: the key columns set, all else null, or a placeholder where the
        column admits no null. Raises InvalidCallError naming the value."""
        table = as_key_table(keys, self._schema, self._primary_key)
        columns = []
        for field in self._schema:
            if field.name in self._primary_key:
                columns.append(table[field.name])
            elif field.nullable:
                columns.append(pa.nulls(table.num_rows, field.type))
            else:
                columns.append(_placeholders(field.type, table.num_rows))
        given = pa.Table.from_arrays(columns, schema=self._schema)
        return self._batch([_one_chunk(column) for column in given.columns], tombstone=True)

    def _table(self, data: Any) -> pa.Table:
        if isinstance(data, pa.Table):
            return data
        if isinstance(data, pa.RecordBatch):
            return pa.Table.from_batches([data])
        try:
            if isinstance(data, pa.RecordBatchReader):
                return data.read_all()
            if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
                # Its own export would add the index as a column.
                return pa.Table.from_pandas(data, preserve_index=False)
            if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
                return pa.table(data)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidCallError(f"{type(data).__name__} can't be read: {error}") from error
        if isinstance(data, Mapping):
            return self._from_columns(dict(data))
        if isinstance(data, Sequence) and all(isinstance(row, Mapping) for row in data):
            names = dict.fromkeys(name for row in data for name in row)
            return self._from_columns({name: [row.get(name) for row in data] for name in names})
        raise InvalidCallError(f"{type(data).__name__} is not a set of rows: {_REMEDY}")

    def _from_columns(self, columns: dict[str, Any]) -> pa.Table:
        self._check_names(list(columns))
        arrays = [
            exact_values(values, self._schema.field(name)) for name, values in columns.items()
        ]
        if len({len(array) for array in arrays}) > 1:
            lengths = {name: len(a) for name, a in zip(columns, arrays, strict=True)}
            raise InvalidCallError(f"columns must be equally long, not {lengths}")
        if not columns:  # no rows: their columns are not known, and none is missing
            return self._schema.empty_table()
        return pa.Table.from_arrays(arrays, names=list(columns))

    def _sound(self, columns: Sequence[Column]) -> list[Column]:
        return [sound(c, name) for c, name in zip(columns, self._schema.names, strict=True)]

    def _fit(self, table: pa.Table) -> list[Column]:
        names = table.column_names
        self._check_names(names)
        given = dict(zip(names, table.columns, strict=True))
        columns: list[Column] = []
        for field in self._schema:
            if field.name in given:
                columns.append(exact_cast(given[field.name], field))
            elif field.name in self._required:
                kind = "primary key" if field.name in self._primary_key else "required"
                raise InvalidCallError(
                    f"the {kind} column {field.name!r} ({field.type}) is missing; there are {names}"
                )
            else:
                columns.append(pa.nulls(table.num_rows, field.type))
        return columns

    def _check_names(self, names: list[str]) -> None:
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise InvalidCallError(f"the columns {twice} are there more than once")
        unknown = [name for name in names if name not in self._names]
        if unknown:
            raise InvalidCallError(
                f"the table has no columns {unknown}: drop or rename them; "
                f"it has {self._schema.names}"
            )

    def _check_nulls(self, columns: Sequence[pa.Array]) -> None:
        for name, position in self._required.items():
            column = columns[position]
            if column.null_count:
                row = pc.index(pc.is_null(column), True).as_py()
                kind = "primary key" if name in self._primary_key else "not nullable"
                raise InvalidCallError(
                    f"column {name!r} is {kind}, but row {row} has a null in it: fill it in"
                )

    def _batch(self, columns: Sequence[pa.Array], *, tombstone: bool) -> pa.RecordBatch:
        marks = pa.repeat(_MARKS[tombstone], len(columns[0]))
        return pa.RecordBatch.from_arrays([*columns, marks], schema=self._target)


def _one_chunk(column: Column) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):  # more than fits into one array's 32-bit offsets
        raise InvalidCallError(
            f"a column of {column.nbytes} bytes is too large for one call: write fewer rows at once"
        )
    return joined


def _placeholders(kind: pa.DataType, rows: int) -> pa.Array:
    """Values of a type that may not be null, zero or empty; nobody reads them."""
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
    # All nulls are all zeros: without the bitmap, they are values.
    _, *zeros = pa.nulls(rows, kind).buffers()
    return pa.Array.from_buffers(kind, rows, [None, *zeros])
