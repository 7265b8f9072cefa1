"""Spark's conditions as DataFusion's SQL, for those whose meaning is the same in both.

Spark evaluates every condition again, so a condition here may keep too many rows and must not lose
any. Left to Spark alone are floats, as NaN and -0.0 compare otherwise in DataFusion; texts with
collations; columns in types that Spark does not have; and all calls of functions. Conditions that
are kept mean exactly what they mean to Spark, so they may be negated.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

Tree = Mapping[str, Any]
_COMPARISONS = {
    "=": "=",
    "<>": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "<=>": "IS NOT DISTINCT FROM",
}
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_DECIMAL = re.compile(r"decimal\(\d+,\d+\)")
_ZONE = re.compile(r"[A-Za-z0-9_+:/-]+")
# DataFusion parses the text anew for each scan.
_MOST_VALUES = 1_000
_MOST_CHARACTERS = 1_000


def sql_of(conditions: Sequence[Tree], schema: pa.Schema) -> list[str]:
    """The conditions that can be used, as SQL over columns of `schema`."""
    texts = (_sql(condition, schema) for condition in conditions)
    return [text for text in texts if text is not None]


def _sql(tree: Tree, schema: pa.Schema) -> str | None:
    op, arguments = tree.get("op"), tree.get("arguments", ())
    if op in ("AND", "OR", "NOT"):
        parts = [_sql(argument, schema) for argument in arguments]
        if None in parts:
            return None
        return f"(NOT {parts[0]})" if op == "NOT" else f"({f' {op} '.join(map(str, parts))})"
    column = _column(arguments[0], schema) if arguments else None
    if column is None:
        return None
    name = '"' + column.name.replace('"', '""') + '"'
    if op in ("IS_NULL", "IS_NOT_NULL"):
        return f"({name} {op.replace('_', ' ')})"
    values = [_literal(argument, column.type) for argument in arguments[1:]]
    if None in values or not 0 < len(values) <= _MOST_VALUES:
        return None
    if op == "IN":
        return f"({name} IN ({', '.join(map(str, values))}))"
    if op in _COMPARISONS and len(values) == 1:
        return f"({name} {_COMPARISONS[op]} {values[0]})"
    return None


def _column(tree: Tree, schema: pa.Schema) -> pa.Field | None:
    path = tree.get("column", ())
    known = len(path) == 1 and schema.get_field_index(path[0]) >= 0
    return schema.field(path[0]) if known else None


def _literal(tree: Tree, column: pa.DataType) -> str | None:
    """A value to compare a column with; None for NULL too, as no comparison with it is true."""
    kind, value = tree.get("type"), tree.get("value")
    if kind is None or value is None:
        return None
    for is_kind, is_type, text in _LITERALS:
        if is_kind(kind) and is_type(column):
            return text(value, column)
    return None


def _text(value: str, column: pa.DataType) -> str | None:
    del column
    if len(value) > _MOST_CHARACTERS or not value.isprintable():
        return None
    return "'" + value.replace("'", "''") + "'"


def _timestamp(value: str, column: pa.DataType) -> str | None:
    if column.tz is None:
        return f"arrow_cast({int(value)}, 'Timestamp(Microsecond, None)')"
    if not _ZONE.fullmatch(column.tz):
        return None
    return f"arrow_cast({int(value)}, 'Timestamp(Microsecond, Some(\"{column.tz}\"))')"


def _decimal(value: str, column: pa.DataType) -> str | None:
    """None for a value that the column can't hold: it would be rounded."""
    sign, digits, exponent = Decimal(value).as_tuple()
    del sign
    places = -int(exponent)
    if places > column.scale or len(digits) + column.scale - places > column.precision:
        return None
    return f"arrow_cast('{value}', 'Decimal128({column.precision}, {column.scale})')"


def _is_micros(zoned: bool) -> Callable[[pa.DataType], bool]:
    def is_micros(kind: pa.DataType) -> bool:
        return pa.types.is_timestamp(kind) and kind.unit == "us" and (kind.tz is not None) == zoned

    return is_micros


# Spark's types of values, Arrow's of the columns that have them, and the value as SQL.
_LITERALS: Sequence[
    tuple[
        Callable[[str], object],
        Callable[[pa.DataType], bool],
        Callable[[str, pa.DataType], str | None],
    ]
] = (
    (_INTEGERS.__contains__, pa.types.is_signed_integer, lambda value, _: str(int(value))),
    ("boolean".__eq__, pa.types.is_boolean, lambda value, _: value.upper()),
    ("string".__eq__, lambda kind: kind in (pa.string(), pa.large_string()), _text),
    ("binary".__eq__, pa.types.is_binary, lambda value, _: f"X'{b64decode(value).hex()}'"),
    (
        "date".__eq__,
        pa.types.is_date32,
        lambda value, _: f"arrow_cast({int(value)}, 'Date32')",
    ),
    ("timestamp".__eq__, _is_micros(zoned=True), _timestamp),
    ("timestamp_ntz".__eq__, _is_micros(zoned=False), _timestamp),
    (_DECIMAL.fullmatch, pa.types.is_decimal128, _decimal),
)
