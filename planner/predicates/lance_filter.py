"""The text of a condition for Lance's scanner."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa

from planner.predicates.domain import Point
from planner.predicates.expr import (
    And,
    Call,
    Compare,
    Constant,
    Distinct,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operand,
    Or,
    Other,
    Predicate,
    Truth,
)
from planner.predicates.literals import InexactError, compared, points_of, python_values

_UTC = ("UTC", "+00:00")


class _NotPushableError(Exception):
    """Raised for a condition that Lance may not understand as DataFusion does."""


def lance_filter(predicate: Predicate, schema: pa.Schema) -> str | None:
    """The condition as Lance's scanner takes it; None when it must be applied elsewhere.

    Lance parses filters with a dialect of its own: a double-quoted name is a *string* to it (the
    condition silently keeps other rows), a backquoted one is a column; some literals it refuses,
    some it rounds to the type of the column, and it compares timestamps of zones other than UTC by
    the clock on the wall. So the text is rewritten from the predicate, and only for shapes that
    were tried against DataFusion on NULL, NaN, -0.0, empty and odd texts, with and without an index
    (`tests/planner/predicates/test_lance_filter.py`).
    """
    if isinstance(predicate, Constant):  # what DataFusion made of a filter that was taken over
        return "true" if predicate.value else "false"
    try:
        return _text(predicate, schema)
    except (_NotPushableError, InexactError):
        return None


def _text(predicate: Predicate, schema: pa.Schema) -> str:
    match predicate:
        case And(arguments):
            return _joined(" AND ", arguments, schema)
        case Or(arguments):
            return _joined(" OR ", arguments, schema)
        case Not(argument):
            return f"NOT ({_text(argument, schema)})"
        case Constant() | Call() | Other() | Truth():
            # With an index, Lance does not take NULL for "not FALSE".
            raise _NotPushableError
        case IsNull(operand):
            if operand.casts:  # which may fail, or make NULL of what does not fit
                raise _NotPushableError
            return f"{_column(operand, schema)} IS NULL"
        case Like(operand, pattern, any_case):
            return _like(operand, pattern, any_case, schema)
        case Compare(operand, op, literal):
            return f"{_column(operand, schema)} {op} {_literal(operand, literal, schema)}"
        case Distinct(operand, literal):
            column = _column(operand, schema)
            return f"({column} IS DISTINCT FROM {_literal(operand, literal, schema)})"
        case In():
            return _in(predicate, schema)


def _joined(word: str, arguments: Sequence[Predicate], schema: pa.Schema) -> str:
    return word.join(f"({_text(argument, schema)})" for argument in arguments)


def _column(operand: Operand, schema: pa.Schema) -> str:
    """The column in backquotes; its casts are left to `_literal`, which sees through exact ones."""
    name, kind = operand.column, _kind(operand, schema)
    if "`" in name or "." in name or pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        raise _NotPushableError
    return f"`{name}`"


def _like(operand: Operand, pattern: str, any_case: bool, schema: pa.Schema) -> str:
    kind = _kind(operand, schema)
    if "\\" in pattern or operand.casts or not pa.types.is_string(kind):
        raise _NotPushableError
    return f"{_column(operand, schema)} {'ILIKE' if any_case else 'LIKE'} {_quoted(pattern)}"


def _in(predicate: In, schema: pa.Schema) -> str:
    operand, values = predicate.operand, predicate.values
    kind = _kind(operand, schema)
    # Lance's IN, unlike DataFusion's, does not tell -0.0 from 0.0.
    if pa.types.is_floating(kind) or not values:
        raise _NotPushableError
    points = points_of(kind, operand, predicate.type, values)
    if points is None:
        literals = (Literal(predicate.type, value) for value in values if value is not None)
        points = [_point(operand, literal, kind) for literal in literals]
    texts = [_rendered(point, kind) for point in points]
    if len(texts) < len(values):
        texts.append("NULL")
    return f"{_column(operand, schema)} IN ({', '.join(texts)})"


def _kind(operand: Operand, schema: pa.Schema) -> pa.DataType:
    if schema.get_field_index(operand.column) < 0:
        raise _NotPushableError
    return schema.field(operand.column).type


def _literal(operand: Operand, literal: Literal, schema: pa.Schema) -> str:
    """`literal` in the type of the column itself."""
    kind = _kind(operand, schema)
    if literal.value is None:
        raise _NotPushableError
    if pa.types.is_float64(kind):
        return _double(operand, literal)
    return _rendered(_point(operand, literal, kind), kind)


def _point(operand: Operand, literal: Literal, kind: pa.DataType) -> Point:
    domain = compared(kind, operand, "=", literal)
    if len(domain.points) != 1 or domain.intervals:
        raise _NotPushableError
    (point,) = domain.points
    return point


def _rendered(point: Point, kind: pa.DataType) -> str:
    if isinstance(point, str):
        return _quoted(point)
    if isinstance(point, bytes):
        return f"X'{point.hex()}'"
    if pa.types.is_boolean(kind):
        return "true" if point else "false"
    if pa.types.is_integer(kind):
        if point == -(2**63):
            # Lance reads the digits before the sign.
            raise _NotPushableError
        return str(point)
    if pa.types.is_decimal128(kind):
        (value,) = python_values([point], kind)
        return f"CAST('{value:f}' AS DECIMAL({kind.precision},{kind.scale}))"
    if pa.types.is_date32(kind):
        return f"CAST('{_iso(point * 86_400 * 10**9)[:10]}' AS DATE)"
    if pa.types.is_timestamp(kind) and (kind.tz is None or kind.tz in _UTC):
        nanoseconds = point * {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[kind.unit]
        zone = "" if kind.tz is None else "+00:00"
        return f"CAST('{_iso(nanoseconds)}{zone}' AS TIMESTAMP(9))"
    raise _NotPushableError


def _double(operand: Operand, literal: Literal) -> str:
    if operand.casts or literal.type != pa.float64() or not isinstance(literal.value, str):
        raise _NotPushableError
    value = float(literal.value)
    if not math.isfinite(value):
        raise _NotPushableError
    text = repr(value)
    return text if "." in text or "e" in text else f"{text}.0"


def _iso(nanoseconds: int) -> str:
    seconds, fraction = divmod(nanoseconds, 10**9)
    # Lance casts to nanoseconds, which end in 2262 and begin in 1677.
    if not -(2**63) <= nanoseconds < 2**63:
        raise _NotPushableError
    column = pa.array([seconds], pa.timestamp("s")).cast(pa.string())
    return f"{column[0].as_py().replace(' ', 'T')}.{fraction:09d}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
