"""Key values as literals of Lance's SQL filters, exact for every key type."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from exec_nodes.keys.keys import KeyBatch, plain

_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}
_INT64_MIN = -(2**63)


def key_condition(keys: KeyBatch) -> str | None:
    """A condition that every row of these keys meets; None if Lance's SQL can't express it.

    The columns of a composite key are matched one by one, so other rows may meet it too.
    """
    conditions = []
    for name, column in zip(keys.names, keys.table.columns, strict=True):
        values = literals(column if len(keys.names) == 1 else column.unique())
        if values is None or "`" in name:
            return None
        single = len(values) == 1
        conditions.append(
            f"`{name}` = {values[0]}" if single else f"`{name}` IN ({','.join(values)})"
        )
    return " AND ".join(conditions)


def literals(column: pa.Array | pa.ChunkedArray) -> Sequence[str] | None:
    """One literal a value (no nulls); None if Lance's SQL has none for this type."""
    kind = column.type
    if pa.types.is_decimal(kind):
        if kind.scale < 0:
            return None
        name = "Decimal128" if pa.types.is_decimal128(kind) else "Decimal256"
        arrow = f"{name}({kind.precision}, {kind.scale})"
        return [f"arrow_cast('{value:f}','{arrow}')" for value in column.to_pylist()]
    values = plain(column).to_pylist()
    if pa.types.is_boolean(kind):
        return ["true" if value else "false" for value in values]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ["'" + value.replace("'", "''") + "'" for value in values]
    if pa.types.is_integer(kind):
        texts = list(map(str, values))
        if pa.types.is_int64(kind) and _INT64_MIN in values:
            # Its digits alone don't fit, and the minus sign is an operator.
            return [f"arrow_cast('{text}','Int64')" for text in texts]
        return texts
    temporal = _arrow_name(kind)
    if temporal is not None:
        return [f"arrow_cast({value},'{temporal}')" for value in values]
    return [f"X'{value.hex()}'" for value in values]


def _arrow_name(kind: pa.DataType) -> str | None:
    if pa.types.is_date32(kind):
        return "Date32"
    if pa.types.is_date64(kind):
        return "Date64"
    if pa.types.is_time32(kind):
        return f"Time32({_UNITS[kind.unit]})"
    if pa.types.is_time64(kind):
        return f"Time64({_UNITS[kind.unit]})"
    if pa.types.is_timestamp(kind):
        zone = "None" if kind.tz is None else f'Some("{kind.tz}")'
        return f"Timestamp({_UNITS[kind.unit]}, {zone})"
    return None
