"""Nested Arrow types and arrays by their parts: the fields of a struct, the item of a list, the key
and the value of a map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from exec_nodes.arrow.arrays import is_list
from exec_nodes.base.errors import InvalidCallError, UnsupportedError

# Arrow hands over no schema of more than 64 levels, of which it counts the table as one.
MOST_LEVELS = 60
# A null of a type of a fixed size takes as many bytes as a value, also in rows of a file that lacks
# the column.
MOST_ROW_BYTES = 16 << 20


def check_levels(schema: pa.Schema) -> None:
    """Raise InvalidCallError for a column whose type has types within it on too many levels."""
    for column in schema:
        level, count = [column.type], 0
        while level and count <= MOST_LEVELS:
            level = [
                field.type for kind in level if kind.num_fields for field in inner_fields(kind)
            ]
            count += 1
        if level:
            raise InvalidCallError(
                f"column {column.name!r} has a type of more than {MOST_LEVELS} levels, the most "
                "that Arrow hands over: store it as JSON, or as several columns"
            )


def check_width(schema: pa.Schema) -> None:
    """Raise UnsupportedError for columns of types of a fixed size that take too much in each row,
    such as a list of 999,999,999 numbers."""
    widths = {field.name: _width(field.type) for field in schema}
    if sum(widths.values()) > MOST_ROW_BYTES:
        name = max(widths, key=widths.__getitem__)
        raise UnsupportedError(
            f"column {name!r} of type {schema.field(name).type} takes {widths[name]:,} bytes in "
            f"each row, null or not: {MOST_ROW_BYTES:,} are the most for all columns together; "
            "make it a list or binary of any length"
        )


def _width(kind: pa.DataType) -> int:
    """The bytes of a null, with one element in each list of any length."""
    if isinstance(kind, pa.BaseExtensionType):
        return _width(kind.storage_type)
    if pa.types.is_nested(kind):
        count = kind.list_size if pa.types.is_fixed_size_list(kind) else 1
        return int(count) * sum(_width(field.type) for field in inner_fields(kind))
    try:
        return int(kind.byte_width)  # the bits of the widest binary overflow
    except ValueError:
        return int(pa.types.is_boolean(kind))  # there are eight in a byte


def inner_fields(kind: pa.DataType) -> list[pa.Field]:
    """The child fields of a nested type; [] for any other type."""
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.value_field] if is_list(kind) else []


def with_inner_fields(kind: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """The same nested type with other fields in it."""
    if pa.types.is_struct(kind):
        return pa.struct(fields)
    if pa.types.is_map(kind):
        return pa.map_(*fields, keys_sorted=kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(fields[0], kind.list_size)
    return pa.large_list(fields[0]) if pa.types.is_large_list(kind) else pa.list_(fields[0])


def inner_arrays(array: pa.Array) -> list[pa.Array]:
    """The arrays of `inner_fields`: as long as `array` for a struct, whole for lists and maps."""
    if pa.types.is_struct(array.type):
        return [array.field(place) for place in range(array.type.num_fields)]
    if pa.types.is_map(array.type):
        return [array.keys, array.items]
    return [array.values]


def with_inner_arrays(
    array: pa.Array, fields: Sequence[pa.Field], inner: Sequence[pa.Array]
) -> pa.Array:
    """`array` with other `inner_arrays`, whose fields are `fields`. Its own buffers are shared."""
    kind = with_inner_fields(array.type, fields)
    if pa.types.is_struct(kind):
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(inner, fields=fields, mask=mask)
    if pa.types.is_map(kind):
        inner = [pa.StructArray.from_arrays(inner, fields=fields)]
    own = array.buffers()[: 1 if pa.types.is_fixed_size_list(kind) else 2]
    return pa.Array.from_buffers(kind, len(array), own, offset=array.offset, children=inner)


def relabelled(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """`array` as `kind`, a type that differs only in what its inner fields say of metadata and of
    nulls; no copy."""
    if array.type.equals(kind, check_metadata=True):
        return array
    return pa.array(_Relabelled(array, kind))


@dataclass(frozen=True, slots=True)
class _Relabelled:
    """An array for Arrow's own interchange, under another type. Views and casts read the values
    first, and refuse a NULL below a NULL struct where the field admits none."""

    array: pa.Array
    kind: pa.DataType

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        _, values = self.array.__arrow_c_array__()
        return self.kind.__arrow_c_schema__(), values
