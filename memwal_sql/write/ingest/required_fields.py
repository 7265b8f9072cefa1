"""Fields inside columns that admit no NULL.

Arrow lets arrays have NULLs there, and Lance writes no such row: a MemTable with one could never be
flushed.
"""

from __future__ import annotations

import pyarrow as pa

from exec_nodes.arrow.nested import inner_fields
from exec_nodes.arrow.validate import first_row
from memwal_sql.errors import InvalidCallError


def has_required_fields(kind: pa.DataType) -> bool:
    """Whether some field inside a type admits no NULL. The keys of maps are Arrow's own matter."""
    fields = inner_fields(kind)
    required = fields[1:] if pa.types.is_map(kind) else fields
    return any(not field.nullable for field in required) or any(
        has_required_fields(field.type) for field in fields
    )


def check_required_fields(column: pa.Array, name: str) -> None:
    """Raise InvalidCallError naming the row where a field that admits no NULL has one.

    What lies below a NULL struct or list does not count.
    """
    path = _null_in(column)
    if path is not None:
        row = first_row(column, lambda part: _null_in(part) is None)
        raise InvalidCallError(
            f"column {name!r}: the field {path!r} inside it is not nullable, but row {row} has a "
            "null in it: fill it in"
        )


def _null_in(array: pa.Array) -> str | None:
    """The path of a field that admits no NULL and has one."""
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
