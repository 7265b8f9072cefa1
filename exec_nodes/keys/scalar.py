"""A single key taken straight from its Python value, as Arrow would take most of a lookup."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import pyarrow as pa

from exec_nodes.base.lazy import lazy_property
from exec_nodes.keys.keys import KeyBatch

_INTEGER_BOUNDS = {
    kind: (-(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1)
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
} | {
    kind: (0, (1 << kind.bit_width) - 1)
    for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
}


class OneKey(KeyBatch):
    """A batch of one key; its Arrow table is made when somebody asks for it."""

    def __init__(self, value: Hashable, schema: pa.Schema, primary_key: Sequence[str]) -> None:
        self.values = [value]
        self._schema = schema
        self._primary_key = primary_key

    def __len__(self) -> int:
        return 1

    @property
    def names(self) -> list[str]:
        """The key columns' names in key order."""
        return list(self._primary_key)

    @property
    def types(self) -> list[pa.DataType]:
        """The key columns' types in key order."""
        return [self._schema.field(name).type for name in self._primary_key]

    @lazy_property
    def table(self) -> pa.Table:
        """The key columns in their exact types."""
        fields = [self._schema.field(name).with_nullable(False) for name in self._primary_key]
        parts: Any = self.values[0] if len(fields) > 1 else self.values
        columns = [pa.array([part], field.type) for part, field in zip(parts, fields, strict=True)]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def one_key(value: Any, schema: pa.Schema, primary_key: Sequence[str]) -> OneKey | None:
    """`value`, or the only element of a list, as a key, if it is an integer or ASCII string that
    its column stores unchanged.

    None for a value that needs a closer check: `as_key_table` then takes it or says what is wrong.
    """
    if type(value) is list and len(value) == 1:
        (value,) = value
        if (type(value) is tuple) != (len(primary_key) > 1):
            return None
    parts = value if type(value) is tuple else (value,)
    if len(parts) != len(primary_key):
        return None
    for part, name in zip(parts, primary_key, strict=True):
        if not _is_of_type(part, schema.field(name).type):
            return None
    return OneKey(value if len(primary_key) > 1 else parts[0], schema, primary_key)


def _is_of_type(part: Any, kind: pa.DataType) -> bool:
    if type(part) is int:
        low, high = _INTEGER_BOUNDS.get(kind, (1, 0))
        return bool(low <= part <= high)
    if type(part) is str:
        return (kind == pa.string() or kind == pa.large_string()) and part.isascii()
    return False
