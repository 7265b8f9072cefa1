"""Literals of a predicate as values of a column's type, exactly or not at all.

What DataFusion compares after it has cast both sides to a common type is compared here as exact
rational numbers, and only where that is the same thing.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from fractions import Fraction

import pyarrow as pa

from exec_nodes.kernels.arrays import is_text
from planner.predicates.domain import NOT_NULL, NOTHING, Domain, Interval, Point, domain_of
from planner.predicates.nodes import Literal, Number, Operand, Typed

_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY = 86_400 * 10**9
# Below it every integer is a double, and casting to one keeps order and equality.
_EXACT_DOUBLE = 2**53
_INTEGER_CASTS = frozenset(("TINYINT", "SMALLINT", "INT", "BIGINT", "INTEGER"))
_UNSIGNED = frozenset(("UTINYINT", "USMALLINT", "UINT", "UBIGINT"))
_TEXT_CASTS = frozenset(("VARCHAR", "TEXT", "STRING"))
_TIMESTAMPS = frozenset(("TIMESTAMP", "TIMESTAMPTZ"))
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(-?\d+)\)")
_MOMENT = re.compile(
    r"(-?\d{4,6}-\d\d-\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?(Z|[+-]\d\d:\d\d)?"
)


class InexactError(Exception):
    """Nothing is known about the comparison of this literal with this column."""


def compared(kind: pa.DataType, operand: Operand, op: str, literal: Literal) -> Domain:
    """The values of a column of type `kind` for which `operand op literal` may be true.

    Raises InexactError when they are not known.
    """
    if literal is None:
        _check_casts(kind, operand)
        return NOTHING
    if not _has_points(kind):
        raise InexactError
    if _is_bytes(kind) or is_text(kind):
        return _ordered(op, _plain(kind, operand, literal))
    if "DATE" in operand.casts:
        return clamped(kind, _by_day(kind, operand, op, literal))
    value = _number(kind, operand, literal)
    low, high = math.floor(value), math.ceil(value)
    if low == high:
        return clamped(kind, _ordered(op, low))
    if not pa.types.is_temporal(kind):
        return clamped(kind, _between(op, low, high))
    # Engines may round a finer moment to the unit of the column: keep both neighbours.
    near = {
        "=": Domain(intervals=(Interval(low, high),)),
        "<>": NOT_NULL,
        "<": Domain(intervals=(Interval(None, high),)),
        "<=": Domain(intervals=(Interval(None, high),)),
        ">": Domain(intervals=(Interval(low, None),)),
        ">=": Domain(intervals=(Interval(low, None),)),
    }
    return clamped(kind, near[op])


def clamped(kind: pa.DataType, domain: Domain) -> Domain:
    """`domain`, of integers, without those that the type can't hold."""
    if pa.types.is_boolean(kind):
        low, high = 0, 1
    elif pa.types.is_decimal(kind):
        high = 10**kind.precision - 1
        low = -high
    elif pa.types.is_unsigned_integer(kind):
        low, high = 0, 2**kind.bit_width - 1
    else:
        low, high = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return domain.meet(Domain(intervals=(Interval(low, high),), null=domain.null))
    # No bound is better than the type's own bound, which the calendar can't take.
    ends = [
        Interval(
            None if i.low is None or i.low <= low else i.low,
            None if i.high is None or i.high >= high else i.high,
        )
        for i in domain.intervals
        if not ((i.low is not None and i.low > high) or (i.high is not None and i.high < low))
    ]
    return domain_of((p for p in domain.points if low <= p <= high), ends, domain.null)


def python_values(points: Iterable[Point], kind: pa.DataType) -> list[object]:
    """Points as Python values that `pa.array(values, kind)` takes for exactly these values."""
    if pa.types.is_boolean(kind):
        return [bool(point) for point in points]
    if pa.types.is_decimal(kind):
        return [_decimal(point, kind.scale) for point in points]
    return list(points)


def point_of(value: object, kind: pa.DataType) -> Point:
    """A region value (see `planner.regions.values`) of type `kind` as a point.

    Raises InexactError when it isn't one.
    """
    if pa.types.is_decimal(kind) and isinstance(value, str):
        unscaled = Fraction(Decimal(value)) * 10**kind.scale
        if unscaled.denominator == 1:
            return int(unscaled)
    elif (is_text(kind) and isinstance(value, str)) or (
        _is_bytes(kind) and isinstance(value, bytes)
    ):
        return value
    elif isinstance(value, int) and not is_text(kind) and not _is_bytes(kind):
        return int(value)
    raise InexactError


def unit_nanoseconds(kind: pa.DataType) -> int:
    """How many nanoseconds one unit of a date, time or timestamp type is."""
    if pa.types.is_date32(kind):
        return _DAY
    return 10**6 if pa.types.is_date64(kind) else _NANOSECONDS[kind.unit]


def moment(text: str, zoned: bool) -> int:
    """Nanoseconds since 1970 in UTC; with an offset exactly if the column has a zone."""
    match = _MOMENT.fullmatch(text)
    if match is None or (match[6] is not None) != zoned:
        raise InexactError
    try:
        date = datetime.date.fromisoformat(match[1])
    except ValueError as error:
        raise InexactError from error
    hour, minute, second = (int(match[i] or 0) for i in (2, 3, 4))
    if hour > 23 or minute > 59 or second > 59:
        raise InexactError
    seconds = (date.toordinal() - 719_163) * 86_400 + hour * 3600 + minute * 60 + second
    if match[6] not in (None, "Z"):
        sign = -1 if match[6][0] == "-" else 1
        seconds -= sign * (int(match[6][1:3]) * 3600 + int(match[6][4:6]) * 60)
    return seconds * 10**9 + int((match[5] or "").ljust(9, "0") or 0)


def _ordered(op: str, point: Point) -> Domain:
    match op:
        case "=":
            return Domain(frozenset((point,)))
        case "<>":
            return _between(op, point, point)
        case "<" | "<=":
            return _between(op, point, point) if op == "<" else _to(point, None)
        case _:
            return _between(op, point, point) if op == ">" else _to(None, point)


def _to(high: Point | None, low: Point | None) -> Domain:
    return Domain(intervals=(Interval(low, high),))


def _between(op: str, low: Point, high: Point) -> Domain:
    """Comparison with a value above `low` and below `high`, or equal to both and left out."""
    whole = isinstance(low, int)
    gap = int(whole and low == high)
    below = Interval(None, low - gap) if whole else Interval(None, low, high_open=True)
    above = Interval(high + gap, None) if whole else Interval(high, None, low_open=True)
    if op == "=":
        return NOTHING
    if op == "<>":
        return domain_of((), (below, above))
    return domain_of((), (below if op in ("<", "<=") else above,))


def _plain(kind: pa.DataType, operand: Operand, literal: Literal) -> Point:
    text = is_text(kind)
    if not all(text and cast in _TEXT_CASTS for cast in operand.casts):
        raise InexactError
    if isinstance(literal, str) and text:
        return literal
    if isinstance(literal, bytes) and not text:
        return literal
    raise InexactError


def _number(kind: pa.DataType, operand: Operand, literal: Literal) -> Fraction:
    """The literal in the column's own unit."""
    _check_casts(kind, operand)
    if pa.types.is_temporal(kind):
        return Fraction(_nanoseconds(kind, literal), unit_nanoseconds(kind))
    if pa.types.is_boolean(kind):
        if isinstance(literal, bool) and not operand.casts:
            return Fraction(literal)
        raise InexactError
    if not isinstance(literal, Number):
        raise InexactError
    try:
        value = Fraction(Decimal(literal.text))
    except (InvalidOperation, ValueError) as error:
        raise InexactError from error
    whole = re.fullmatch(r"-?\d+", literal.text)
    if pa.types.is_decimal(kind):
        if "DOUBLE" in operand.casts or re.search("[eE]", literal.text):
            raise InexactError
        return Fraction(value * Fraction(10) ** kind.scale)
    if not whole and not any(_DECIMAL.fullmatch(cast) for cast in operand.casts):
        # DataFusion compares as doubles.
        value = Fraction(float(literal.text))
    if ("DOUBLE" in operand.casts or not whole) and abs(value) >= _EXACT_DOUBLE:
        raise InexactError
    return value


def _nanoseconds(kind: pa.DataType, literal: Literal) -> int:
    if pa.types.is_time(kind):
        raise InexactError
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    if isinstance(literal, str):
        raise InexactError
    if isinstance(literal, Typed) and literal.kind in ("DATE", *_TIMESTAMPS):
        if literal.kind == "DATE" and (zoned or len(literal.text) != 10):
            raise InexactError
        return moment(literal.text, zoned)
    raise InexactError


def _by_day(kind: pa.DataType, operand: Operand, op: str, literal: Literal) -> Domain:
    """`CAST(timestamp AS DATE) op date`: a whole day of the column's unit."""
    plain = pa.types.is_timestamp(kind) and kind.tz is None
    if not plain or operand.casts != ("DATE",) or not isinstance(literal, Typed):
        raise InexactError
    if literal.kind != "DATE" or len(literal.text) != 10:
        raise InexactError
    unit = unit_nanoseconds(kind)
    start = moment(literal.text, False) // unit
    end = start + _DAY // unit - 1
    match op:
        case "=":
            return Domain(intervals=(Interval(start, end),))
        case "<":
            return _to(start - 1, None)
        case "<=":
            return _to(end, None)
        case ">":
            return _to(None, end + 1)
        case ">=":
            return _to(None, start)
    return Domain(intervals=(Interval(None, start - 1), Interval(end + 1, None)))


def _check_casts(kind: pa.DataType, operand: Operand) -> None:
    """Only casts that keep the order and equality of values (doubles are checked by value)."""
    for cast in operand.casts:
        if pa.types.is_integer(kind):
            whole = cast in _INTEGER_CASTS or cast in _UNSIGNED or cast == "DOUBLE"
            decimal = _DECIMAL.fullmatch(cast)
            if whole or (decimal and int(decimal[2]) >= 0):
                continue
        elif pa.types.is_decimal(kind):
            decimal = _DECIMAL.fullmatch(cast)
            if decimal and int(decimal[2]) >= kind.scale:
                continue
        elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            zoned = pa.types.is_timestamp(kind) and kind.tz is not None
            if cast == "TIMESTAMP" and not zoned:
                continue
        elif is_text(kind) and cast in _TEXT_CASTS:
            continue
        raise InexactError


def _decimal(unscaled: int, scale: int) -> Decimal:
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


def _has_points(kind: pa.DataType) -> bool:
    """Whether the values of the type are points of a domain.

    Named one by one, because a type taken for integers that it isn't loses rows: floats have
    values between any two points, and a dictionary's width is that of its indices.
    """
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or is_text(kind)
        or _is_bytes(kind)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )
