"""Structs that are NULL, with children that are NULL too.

Arrow leaves open what the children of a NULL struct hold, and DataFusion reads a child as it is.
Lance stores no such values, so a row would read differently once its MemTable is flushed.
"""

from __future__ import annotations

import pyarrow as pa


def with_null_children(column: pa.Array) -> pa.Array:
    """A column in which no child of a struct has a value where the struct is NULL.

    Structs in structs alike. A child that admits no NULL keeps what it holds.
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
