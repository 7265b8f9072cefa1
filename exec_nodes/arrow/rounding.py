"""Floats within lists, structs and maps, rounded to fewer bits."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import is_list
from exec_nodes.arrow.nested import with_inner_fields
from exec_nodes.base.errors import InvalidCallError


def is_infinite(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Whether each float is infinite: Arrow has no kernels for float16."""
    return pc.is_inf(pc.cast(column, pa.float64()))


def rounded(
    column: pa.Array | pa.ChunkedArray, target: pa.DataType, name: str
) -> pa.Array | pa.ChunkedArray:
    """Nested values with their floats rounded to those of the target.

    Raises InvalidCallError naming the column and a value that would become infinite.
    """
    cast = pc.cast(column, _with_floats_of(column.type, target))
    if _infinities(cast) == _infinities(column):
        return cast
    for row in range(len(column)):
        if _infinities(cast.slice(row, 1)) != _infinities(column.slice(row, 1)):
            raise InvalidCallError(
                f"column {name!r} needs {target}, and a float of {column[row].as_py()} in row "
                f"{row} would be infinite"
            )
    return cast


def _with_floats_of(source: pa.DataType, target: pa.DataType) -> pa.DataType:
    """A type with the floats that the other has where both have some."""
    if pa.types.is_floating(source) and pa.types.is_floating(target):
        return target
    if is_list(source) and is_list(target):
        pairs = [(source.value_field, target.value_type)]
    elif pa.types.is_map(source) and pa.types.is_map(target):
        pairs = [(source.key_field, target.key_type), (source.item_field, target.item_type)]
    elif pa.types.is_struct(source) and pa.types.is_struct(target):
        places = [target.get_field_index(field.name) for field in source]
        pairs = [
            (field, field.type if at < 0 else target.field(at).type)
            for field, at in zip(source, places, strict=True)
        ]
    else:
        return source
    return with_inner_fields(
        source, [field.with_type(_with_floats_of(field.type, kind)) for field, kind in pairs]
    )


def _infinities(column: pa.Array | pa.ChunkedArray) -> int:
    """The number of infinite floats within values."""
    if isinstance(column, pa.ChunkedArray):
        return sum(map(_infinities, column.chunks))
    if pa.types.is_floating(column.type):
        return int(pc.sum(is_infinite(column)).as_py() or 0)
    if pa.types.is_struct(column.type):
        return sum(map(_infinities, column.flatten()))
    if pa.types.is_map(column.type):
        column = column.cast(pa.list_(pa.struct([column.type.key_field, column.type.item_field])))
    return _infinities(column.flatten()) if is_list(column.type) else 0
