"""Turning what a caller hands over into record batches of the table's schema.

Everything is checked before anything is written: what passes here can be stored. Specification 2,
"Write Operations", step 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.kernels.keys import as_key_table
from memwal_sql.errors import InvalidCallError
from memwal_sql.write.memtable import memtable_schema

_REMEDY = (
    "pass a pyarrow table, batch or reader, a pandas or polars frame, anything with the Arrow C "
    "stream interface, a dict of columns or a list of dicts"
)


class Normaliser:
    """Makes batches for the MemTables of one table: its columns, then `_tombstone`."""

    def __init__(self, schema: pa.Schema, primary_key: Sequence[str]) -> None:
        self._schema = schema
        self._primary_key = tuple(primary_key)
        self._required = tuple(
            name for name in schema.names if name in primary_key or not schema.field(name).nullable
        )
        self._target = memtable_schema(schema)

    def upserts(self, data: Any) -> pa.RecordBatch:
        """Rows to insert or replace.

        Missing nullable columns become null, types are cast where no value changes. Raises
        InvalidCallError naming the column and the value.
        """
        table = self._table(data)
        if not table.schema.equals(self._schema):
            table = self._fit(table)
        self._check_nulls(table)
        return self._batch(table, tombstone=False)

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
                columns.append(pa.array([_placeholder(field.type)] * table.num_rows, field.type))
        return self._batch(pa.Table.from_arrays(columns, schema=self._schema), tombstone=True)

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
        except (pa.ArrowException, TypeError) as error:
            raise InvalidCallError(f"{type(data).__name__} can't be read: {error}") from error
        if isinstance(data, Mapping):
            return self._from_columns(dict(data))
        if isinstance(data, Sequence) and all(isinstance(row, Mapping) for row in data):
            names = dict.fromkeys(name for row in data for name in row)
            return self._from_columns({name: [row.get(name) for row in data] for name in names})
        raise InvalidCallError(f"{type(data).__name__} is not a set of rows: {_REMEDY}")

    def _from_columns(self, columns: dict[str, Any]) -> pa.Table:
        self._check_names(list(columns))
        arrays = [_typed(values, self._schema.field(name)) for name, values in columns.items()]
        if len({len(array) for array in arrays}) > 1:
            lengths = {name: len(a) for name, a in zip(columns, arrays, strict=True)}
            raise InvalidCallError(f"columns must be equally long, not {lengths}")
        if not columns:  # no rows: their columns are not known, and none is missing
            return self._schema.empty_table()
        return pa.Table.from_arrays(arrays, names=list(columns))

    def _fit(self, table: pa.Table) -> pa.Table:
        self._check_names(table.column_names)
        columns = []
        for field in self._schema:
            if field.name in table.column_names:
                columns.append(_exact(table[field.name], field))
            elif field.name in self._required:
                kind = "primary key" if field.name in self._primary_key else "required"
                raise InvalidCallError(
                    f"the {kind} column {field.name!r} ({field.type}) is missing; "
                    f"there are {table.column_names}"
                )
            else:
                columns.append(pa.nulls(table.num_rows, field.type))
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _check_names(self, names: list[str]) -> None:
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidCallError(f"the columns {twice} are there more than once")
        unknown = [name for name in names if name not in self._schema.names]
        if unknown:
            raise InvalidCallError(
                f"the table has no columns {unknown}: drop or rename them; "
                f"it has {self._schema.names}"
            )

    def _check_nulls(self, table: pa.Table) -> None:
        for name in self._required:
            column = table[name]
            if column.null_count:
                row = pc.index(pc.is_null(column), True).as_py()
                kind = "primary key" if name in self._primary_key else "not nullable"
                raise InvalidCallError(
                    f"column {name!r} is {kind}, but row {row} has a null in it: fill it in"
                )

    def _batch(self, table: pa.Table, *, tombstone: bool) -> pa.RecordBatch:
        rows = table.num_rows
        columns = [_one_chunk(column) for column in table.columns]
        columns.append(pa.repeat(pa.scalar(tombstone), rows))
        return pa.RecordBatch.from_arrays(columns, schema=self._target)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):  # more than fits into one array's 32-bit offsets
        raise InvalidCallError(
            f"a column of {column.nbytes} bytes is too large for one call: write fewer rows at once"
        )
    return joined


def _typed(values: Any, field: pa.Field) -> pa.Array:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidCallError(
            f"column {field.name!r} needs values of type {field.type}: {error}"
        ) from error


def _exact(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """The column in the field's type. Raises InvalidCallError when a value would change."""
    source, target = column.type, field.type
    if source == target:
        return column
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column), target)])
    if not _same_kind(source, target):
        raise InvalidCallError(
            f"column {field.name!r} needs {target}, not {source}: cast it before writing"
        )
    try:
        cast = pc.cast(column, target)
        back = pc.cast(cast, source)
    except pa.ArrowException as error:
        raise InvalidCallError(
            f"column {field.name!r} can't be cast from {source} to {target}: {error}"
        ) from error
    if not _equal(back, column):
        row, value = _first_difference(back, column)
        raise InvalidCallError(
            f"column {field.name!r} needs {target}, and the {source} value {value} in row {row} "
            "would change: cast it yourself if that is meant"
        )
    return cast


def _same_kind(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_dictionary(source):
        return _same_kind(source.value_type, target)
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        # With a zone it is an instant, without one a wall clock: no value is the same in both.
        return (source.tz is None) == (target.tz is None)
    return any(of(source) and of(target) for of in _KINDS)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


_KINDS = (
    _is_number,
    _is_text,
    _is_bytes,
    _is_list,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_duration,
    pa.types.is_struct,
    pa.types.is_map,
)


def _equal(a: pa.ChunkedArray, b: pa.ChunkedArray) -> bool:
    if a.equals(b):
        return True
    # NaN differs from itself.
    return bool(pa.types.is_floating(a.type)) and _first_difference(a, b)[0] < 0


def _first_difference(a: pa.ChunkedArray, b: pa.ChunkedArray) -> tuple[int, object]:
    if not pa.types.is_floating(a.type):
        pairs = zip(a.to_pylist(), b.to_pylist(), strict=True)
        return next(((row, y) for row, (x, y) in enumerate(pairs) if x != y), (-1, None))
    same = pc.or_(pc.equal(a, b), pc.and_(pc.is_nan(a), pc.is_nan(b)))
    row = pc.index(pc.fill_null(same, True), False).as_py()
    return row, b[row].as_py() if row >= 0 else None


def _placeholder(kind: pa.DataType) -> Any:
    """Any value of a type that may not be null; nobody reads it."""
    if pa.types.is_struct(kind):
        return {field.name: _placeholder(field.type) for field in kind}
    if pa.types.is_fixed_size_list(kind):
        return [_placeholder(kind.value_type)] * kind.list_size
    if _is_list(kind) or pa.types.is_map(kind):
        return []
    if pa.types.is_fixed_size_binary(kind):
        return bytes(kind.byte_width)
    if _is_bytes(kind):
        return b""
    if _is_text(kind):
        return ""
    if pa.types.is_boolean(kind):
        return False
    return 0
