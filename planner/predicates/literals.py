"""Literals of a predicate as values of a column's type, exactly or not at all.

What DataFusion compares after it has cast both sides to a common type is compared here as exact
rational numbers, and only where that is the same thing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa

from exec_nodes.arrow.arrays import is_binary, is_text
from planner.predicates.domain import NOT_NULL, NOTHING, Domain, Interval, Point, domain_of
from planner.predicates.expr import Literal, Operand, Value

_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY = 86_400 * 10**9
# Below it every integer is a double, and casting to one keeps order and equality.
_EXACT_DOUBLE = 2**53


class InexactError(Exception):
    """Nothing is known about the comparison of this literal with this column."""


def compared(kind: pa.DataType, operand: Operand, op: str, literal: Literal) -> Domain:
    """The values of a column of type `kind` for which `operand op literal` may be true.

    Raises InexactError when they are not known.
    """
    if literal.value is None:
        return NOTHING
    if not _has_points(kind):
        raise InexactError
    if is_binary(kind) or is_text(kind):
        point = _plain(kind, operand, literal)
        return _comparison(op, point, point)
    if pa.types.is_timestamp(kind) and any(map(pa.types.is_date, operand.casts)):
        return clamped(kind, _by_day(kind, operand, op, literal))
    value = _number(kind, operand, literal)
    low, high = math.floor(value), math.ceil(value)
    if low == high or not pa.types.is_temporal(kind):
        # No value lies between two neighbours: the range from the upper to the lower is empty.
        return clamped(kind, _comparison(op, high, low))
    # Engines may round a finer moment to the unit of the column: keep both neighbours.
    if op == "<>":
        return NOT_NULL
    return clamped(kind, _comparison({"<": "<=", ">": ">="}.get(op, op), low, high))


def points_of(
    kind: pa.DataType, operand: Operand, type_: pa.DataType, values: Sequence[Value]
) -> Sequence[Point] | None:
    """`values`, literals of one type and none of them NULL, as points of a column of type `kind`,
    where each is one without any cast; None where that must be looked at."""
    same = kind == type_ and not operand.casts and _has_points(kind)
    return [point for point in values if point is not None] if same else None


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
        is_binary(kind) and isinstance(value, bytes)
    ):
        return value
    elif isinstance(value, int) and not is_text(kind) and not is_binary(kind):
        return int(value)
    raise InexactError


def unit_nanoseconds(kind: pa.DataType) -> int:
    """The nanoseconds in one unit of a date, time or timestamp type."""
    if pa.types.is_date32(kind):
        return _DAY
    return 10**6 if pa.types.is_date64(kind) else _NANOSECONDS[kind.unit]


def _comparison(op: str, low: Point, high: Point) -> Domain:
    """`value op literal`, where the values from `low` to `high` are equal to the literal."""
    if op == "=":
        return Domain(frozenset((low,))) if low == high else domain_of((), (Interval(low, high),))
    whole = isinstance(low, int)
    below = Interval(None, low - 1) if whole else Interval(None, low, high_open=True)
    above = Interval(high + 1, None) if whole else Interval(high, None, low_open=True)
    intervals = {
        "<>": (below, above),
        "<": (below,),
        "<=": (Interval(None, high),),
        ">": (above,),
        ">=": (Interval(low, None),),
    }
    return Domain(intervals=intervals[op])


def _plain(kind: pa.DataType, operand: Operand, literal: Literal) -> Point:
    alike = is_text if is_text(kind) else is_binary
    if not all(map(alike, (*operand.casts, literal.type))):
        raise InexactError
    return literal.value


def _number(kind: pa.DataType, operand: Operand, literal: Literal) -> Fraction:
    """The literal in the column's own unit."""
    _check_casts(kind, operand)
    value, type_ = literal.value, literal.type
    if not _alike(operand.casts[-1] if operand.casts else kind, type_):
        raise InexactError
    if pa.types.is_floating(type_):
        exact = _double(value)
    elif isinstance(value, int):
        exact = Fraction(value)
    else:
        raise InexactError
    if pa.types.is_temporal(kind):
        return exact * unit_nanoseconds(type_) / unit_nanoseconds(kind)
    if pa.types.is_decimal(type_):
        exact /= Fraction(10) ** type_.scale
    if pa.types.is_decimal(kind):
        exact *= Fraction(10) ** kind.scale
    if any(map(pa.types.is_floating, operand.casts)) and abs(exact) >= _EXACT_DOUBLE:
        raise InexactError
    return exact


def _double(text: Value) -> Fraction:
    value = float(text) if isinstance(text, str) else math.nan
    if not math.isfinite(value):
        raise InexactError
    return Fraction(value)


def _alike(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether values of the two types compare as plain numbers of one unit."""
    if pa.types.is_timestamp(left) and pa.types.is_timestamp(right):
        return bool(left.unit == right.unit and (left.tz is None) == (right.tz is None))
    return bool(left == right)


def _by_day(kind: pa.DataType, operand: Operand, op: str, literal: Literal) -> Domain:
    """`CAST(timestamp AS DATE) op date`: a whole day of the column's unit."""
    dates = operand.casts == (pa.date32(),) and literal.type == pa.date32()
    if not dates or kind.tz is not None or not isinstance(literal.value, int):
        raise InexactError
    day = _DAY // unit_nanoseconds(kind)
    start = literal.value * day
    return _comparison(op, start, start + day - 1)


def _check_casts(kind: pa.DataType, operand: Operand) -> None:
    """Only casts that keep the order and equality of values (doubles are checked by value)."""
    for before, after in itertools.pairwise((kind, *operand.casts)):
        if not _keeps_values(before, after):
            raise InexactError


def _keeps_values(before: pa.DataType, after: pa.DataType) -> bool:
    """Whether each value stays the same by the cast, or is an error."""
    if pa.types.is_integer(before) or pa.types.is_float64(before):
        whole = pa.types.is_integer(after) or pa.types.is_float64(after)
        return bool(whole or (pa.types.is_decimal(after) and after.scale >= 0))
    if pa.types.is_decimal(before):
        return bool(pa.types.is_decimal(after) and after.scale >= before.scale)
    if not pa.types.is_timestamp(after):
        return False
    if pa.types.is_date(before):
        return after.tz is None
    return bool(
        pa.types.is_timestamp(before)
        and (before.tz is None) == (after.tz is None)
        and unit_nanoseconds(after) <= unit_nanoseconds(before)
    )


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
        or is_binary(kind)
    )
