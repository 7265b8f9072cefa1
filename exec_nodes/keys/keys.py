"""Primary keys: their types, their Python values, and batches of them.

A *key value* is an element of a hash index: int, str, bytes or bool for a single column (dates,
times and timestamps as their integer, decimals as their 16 or 32 little-endian bytes), and a tuple
of these for a composite key. Two keys are equal exactly if their key values are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.casts import exact_cast
from exec_nodes.arrow.input_rows import input_rows, read_once
from exec_nodes.arrow.python_values import exact_values
from exec_nodes.base.brief import names_text
from exec_nodes.base.errors import InvalidCallError
from exec_nodes.base.lazy import lazy_property
from exec_nodes.keys.hashing import (
    Hashes,
    hash_columns,
    hash_columns_as_native_writer,
    hash_value,
    written_by_native,
)

KeyColumn: TypeAlias = pa.Array | pa.ChunkedArray

_LENGTH_BYTES = 4
_CONVERSION_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def check_key_type(field: pa.Field) -> None:
    """Raise InvalidCallError unless a column of this type can be part of a primary key.

    Allowed: integers, bool, string, binary (fixed size and large ones too), dates, times,
    timestamps and decimals. Floats are not: NaN and -0.0 have no sound equality.
    """
    kind = field.type
    if (
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_date(kind)
        or pa.types.is_time(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal128(kind)
        or pa.types.is_decimal256(kind)
    ):
        return
    raise InvalidCallError(
        f"column {field.name!r} of type {kind} can't be part of a primary key: use integers, "
        "bool, string, binary, date, time, timestamp or decimal"
    )


def key_values(columns: Sequence[KeyColumn]) -> list[Hashable]:
    """The key value of every row of the key columns, in row order."""
    values = [plain(column).to_pylist() for column in columns]
    return values[0] if len(values) == 1 else list(zip(*values, strict=True))


def plain(column: KeyColumn) -> KeyColumn:
    """The column as integers, bool, string or binary, with equality unchanged and no copy."""
    kind = column.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return _view(column, pa.int32())
    if pa.types.is_date64(kind) or pa.types.is_time64(kind) or pa.types.is_timestamp(kind):
        return _view(column, pa.int64())
    if pa.types.is_decimal(kind):
        return _view(column, pa.binary(kind.byte_width))
    return column


def is_integral(kind: pa.DataType) -> bool:
    """Whether `plain` turns a column of this type into integers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))


def key_column(columns: Sequence[KeyColumn]) -> KeyColumn:
    """One column that is equal in two rows exactly if all key columns are.

    A single key column is returned as it is (see `plain`); a composite key becomes binary: the
    bytes of each part, with the length first where it varies.
    """
    if len(columns) == 1:
        return plain(columns[0])
    parts: list[KeyColumn] = []
    for column in columns:
        column = one_array(plain(column))
        kind = column.type
        if pa.types.is_boolean(kind):
            column = column.cast(pa.uint8())
        if pa.types.is_integer(column.type):
            parts.append(_bytes_of(column.view(pa.binary(column.type.bit_width // 8))))
        elif pa.types.is_fixed_size_binary(kind):
            parts.append(_bytes_of(column))
        else:
            length = pc.binary_length(column).cast(pa.int32())
            parts.append(_bytes_of(length.view(pa.binary(_LENGTH_BYTES))))
            parts.append(column.cast(pa.large_binary()))
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


def one_array(column: KeyColumn) -> pa.Array:
    """The column as one array; copied only if it has several chunks."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


class KeyBatch:
    """Keys to look for, with what sources need of them computed once.

    Wraps a table of the key columns in key order and in their exact types, without nulls.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def names(self) -> list[str]:
        """The key columns' names in key order."""
        return list(self.table.column_names)

    @property
    def types(self) -> list[pa.DataType]:
        """The key columns' types in key order."""
        return [column.type for column in self.table.columns]

    @lazy_property
    def values(self) -> list[Hashable]:
        """The key value of every key."""
        return key_values(self.table.columns)

    @lazy_property
    def column(self) -> KeyColumn:
        """The keys as one column, see `key_column`."""
        return key_column(self.table.columns)

    @lazy_property
    def hashes(self) -> Hashes:
        """The hash of every key as native's readers compute it."""
        return hash_columns(self.table.columns)

    @lazy_property
    def native_writer_hashes(self) -> Hashes:
        """The hash of every key as native's writer puts it into a bloom filter."""
        return hash_columns_as_native_writer(self.table.columns)

    @lazy_property
    def few_hashes(self) -> list[tuple[int, int]]:
        """`hashes` and `native_writer_hashes` side by side, computed without numpy's overhead."""
        kinds = self.types
        rows = [(v,) for v in self.values] if len(kinds) == 1 else cast(Any, self.values)
        kept = written_by_native(kinds)
        blank = [k if keep else pa.null() for k, keep in zip(kinds, kept, strict=True)]
        full = [hash_value(row, kinds) for row in rows]
        if blank == kinds:
            return list(zip(full, full, strict=True))
        return [(h, hash_value(row, blank)) for h, row in zip(full, rows, strict=True)]

    @lazy_property
    def positions(self) -> dict[Hashable, int]:
        """The (last) position of every key."""
        return dict(zip(self.values, range(len(self)), strict=True))

    def filter(self, mask: npt.NDArray[np.bool_]) -> KeyBatch:
        """The keys where `mask` is true; the batch itself when it is true everywhere."""
        return self if mask.all() else KeyBatch(self.table.filter(pa.array(mask)))


def as_key_table(keys: Any, schema: pa.Schema, primary_key: Sequence[str]) -> pa.Table:
    """A user's keys as a table of the key columns, in key order and in their exact types.

    Takes values, tuples for a composite key (one of either, or any iterable of them), arrays of
    Arrow, numpy or pandas, and rows in any form of `input_rows`, of which only the key columns
    are looked at.

    Raises InvalidCallError naming the value: nulls, missing columns, wrong types, lossy casts.
    """
    key_schema = pa.schema([schema.field(name).with_nullable(False) for name in primary_key])
    table = _table_of(keys, key_schema)
    names = list(keys) if isinstance(keys, Mapping) else table.column_names
    wrong = [name for name in primary_key if names.count(name) != 1]
    if wrong:
        raise InvalidCallError(
            f"keys lack the primary key columns {wrong}, or have them more than once; they have "
            f"{names_text(names)}: give a list of keys, or a table or a list of dicts with these "
            "columns"
        )
    columns = [_exact(table[name], key_schema.field(name)) for name in primary_key]
    return pa.Table.from_arrays(columns, schema=key_schema)


def _view(column: KeyColumn, kind: pa.DataType) -> KeyColumn:
    if isinstance(column, pa.Array):
        return column.view(kind)
    return pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)


def _bytes_of(column: pa.Array) -> pa.Array:
    return column.cast(pa.large_binary())


def _table_of(keys: Any, schema: pa.Schema) -> pa.Table:
    keys = read_once(keys)
    if isinstance(keys, np.ndarray):
        keys = list(keys) if keys.dtype.hasobject else _array(keys)
    if isinstance(keys, pa.Array | pa.ChunkedArray) and not pa.types.is_struct(keys.type):
        if len(schema) != 1:
            raise InvalidCallError(
                f"one array can't hold the composite key {schema.names}: give a table of them"
            )
        return pa.table({schema.names[0]: keys})
    try:
        rows = input_rows(keys)
    except InvalidCallError:
        if not hasattr(keys, "__arrow_c_stream__") and not hasattr(keys, "__arrow_c_array__"):
            raise
        # A series or an array instead of a table, such as pandas or polars export.
        return pa.table({schema.names[0]: _array(keys)})
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, Mapping):
        return _of_columns({name: rows[name] for name in schema.names if name in rows}, schema)
    if rows:
        return _of_rows(rows, schema)
    return _of_values(keys, schema)


def _array(keys: Any) -> KeyColumn:
    try:
        return pa.chunked_array(keys) if hasattr(keys, "__arrow_c_stream__") else pa.array(keys)
    except _CONVERSION_ERRORS as error:
        raise InvalidCallError(
            f"{type(keys).__name__} {keys!r} can't be read as keys: {error}"
        ) from error


def _of_rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    for row in rows:
        lacking = [name for name in schema.names if name not in row]
        if lacking:
            raise InvalidCallError(f"the key {row!r} lacks the primary key columns {lacking}")
    return _of_columns({name: [row[name] for row in rows] for name in schema.names}, schema)


def _of_values(keys: Any, schema: pa.Schema) -> pa.Table:
    composite = len(schema) > 1
    single = isinstance(keys, str | bytes) or not isinstance(keys, Iterable)
    is_tuple = isinstance(keys, tuple) and not all(isinstance(key, tuple | list) for key in keys)
    if single or (composite and is_tuple):
        keys = [keys]
    rows = list(keys)
    if not composite:
        return pa.table({schema.names[0]: exact_values(rows, schema.field(0))})
    for row in rows:
        if not isinstance(row, tuple | list) or len(row) != len(schema):
            raise InvalidCallError(
                f"key {row!r} must be a tuple of {len(schema)} values, for {schema.names}"
            )
    columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
    arrays = [exact_values(list(c), field) for c, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, names=schema.names)


def _of_columns(columns: dict[str, Any], schema: pa.Schema) -> pa.Table:
    arrays = {name: exact_values(v, schema.field(name)) for name, v in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidCallError(f"key columns must be equally long, not {lengths}")
    return pa.table(arrays)


def _exact(column: pa.ChunkedArray, field: pa.Field) -> KeyColumn:
    if column.null_count:
        raise InvalidCallError(
            f"key column {field.name!r} holds {column.null_count} nulls: leave them out"
        )
    return exact_cast(column, field)
