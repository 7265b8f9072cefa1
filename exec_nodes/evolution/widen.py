"""Types that a column may change to, as every value of the old type is one of the new type too.

Rows that were written before the change keep the old type, and are cast when they are read.
"""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.base.errors import SourceGoneError

Column = TypeVar("Column", pa.Array, pa.ChunkedArray)


def widens(kind: pa.DataType, wider: pa.DataType) -> bool:
    """Whether `wider` is another type of the same kind (integers, floats, decimals) that has all
    values of `kind`."""
    if pa.types.is_integer(kind) and pa.types.is_integer(wider):
        to_signed = pa.types.is_signed_integer(wider)
        same_sign = pa.types.is_signed_integer(kind) == to_signed
        return bool(wider.bit_width > kind.bit_width and (same_sign or to_signed))
    if pa.types.is_floating(kind) and pa.types.is_floating(wider):
        return bool(wider.bit_width > kind.bit_width)
    if pa.types.is_decimal(kind) and pa.types.is_decimal(wider):
        digits, more = (each.precision - each.scale for each in (kind, wider))
        return bool(kind != wider and wider.scale >= kind.scale and more >= digits)
    return False


def widened(column: Column, field: pa.Field) -> Column:
    """A stored column in the type of `field`, the table's column.

    Raises SourceGoneError for a column that is of a wider type: the table that the reader knows is
    older than the rows.
    """
    if widens(field.type, column.type):
        raise SourceGoneError(
            f"column {field.name!r} is {column.type} in rows, and {field.type} in the version of "
            "the table that they are read with: if plain Lance has restored an earlier version, "
            "call table.set_type again"
        )
    return column if column.type == field.type else pc.cast(column, field.type)
