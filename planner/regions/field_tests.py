"""The values of one region field that a tuple domain allows, transform by transform.

A test tells whether a region with this value of the field may hold a row of it; None stands
for "any value may".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from exec_nodes.base.errors import InvalidCallError
from planner.predicates.domain import ANYTHING, Domain, Interval, Point
from planner.predicates.literals import InexactError, point_of, python_values, unit_nanoseconds
from planner.predicates.tuple_domain import TupleDomain, starting_with
from planner.regions.field import RegionField
from planner.regions.transform import date_part, evaluate_columns, width_of
from planner.regions.values import as_region_value, region_values, type_of

Test = Callable[[object], bool]

# The most values of the source columns that are tried to find the values of a field.
_MAX_TRIED = 4096
_NANOSECONDS = {"hour": 3600 * 10**9, "day": 86_400 * 10**9, "month": 31 * 86_400 * 10**9}
_PERIOD = {"hour": 24, "day": 31, "month": 12}


def field_test(field: RegionField, rows: TupleDomain, schema: pa.Schema) -> Test | None:
    """The test of `field` for the `rows`; None when every value may have such rows."""
    names = field.source_columns
    if all(name is None or name not in rows for name in names):
        return None
    if any(name is not None and schema.get_field_index(name) < 0 for name in names):
        return None
    domains = [ANYTHING if name is None else rows.get(name, ANYTHING) for name in names]
    kinds = [pa.null() if name is None else schema.field(name).type for name in names]
    if len(names) == 1:
        match field.transform:
            case "identity":
                return _identity_test(field, domains[0], kinds[0])
            case "year" | "month" | "day" | "hour":
                return _date_part_test(field.transform, domains[0], kinds[0])
            case "truncate":
                return _truncate_test(field, domains[0], kinds[0])
    return _tried_test(field, domains, kinds)


def _identity_test(field: RegionField, domain: Domain, kind: pa.DataType) -> Test | None:
    if not _same_units(field, kind):
        return None

    def test(value: object) -> bool:
        if value is None:
            return domain.null
        point = _point(value, kind)
        return point is None or point in domain

    return test


def _truncate_test(field: RegionField, domain: Domain, kind: pa.DataType) -> Test | None:
    if not _same_units(field, kind):
        return None
    width = width_of(field)
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    step = width * 10 ** max(0, kind.scale) if pa.types.is_decimal(kind) else width

    def test(value: object) -> bool:
        if value is None:
            return domain.null
        point = _point(value, kind)
        if point is None:
            return True
        return domain.meets(_of_prefix(point, width) if text else _of_multiple(point, step))

    return test


def _of_prefix(prefix: str, width: int) -> Interval:
    """The texts whose first `width` characters are `prefix`."""
    return Interval(prefix, prefix) if len(prefix) < width else starting_with(prefix)


def _of_multiple(value: int, step: int) -> Interval:
    """The numbers that round toward zero to `value`, a multiple of `step`."""
    low = value if value > 0 else value - step + 1
    high = value if value < 0 else value + step - 1
    return Interval(low, high)


def _date_part_test(part: str, domain: Domain, kind: pa.DataType) -> Test | None:
    if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return None
    points = set(domain.points)
    ranges: list[Interval] = []
    for interval in domain.intervals:
        if part == "year":
            ranges.append(_years(interval, kind))
            continue
        sampled = _moments(part, interval, kind)
        if sampled is None:
            ranges.append(Interval())
            break
        points.update(sampled)
    allowed = set(_parts(part, points, kind))
    if any(r == Interval() for r in ranges) and domain.null:
        return None

    def test(value: object) -> bool:
        if value is None:
            return domain.null
        return value in allowed or any(value in interval for interval in ranges)

    return test


def _years(interval: Interval, kind: pa.DataType) -> Interval:
    low, high = interval.low, interval.high
    ends = _parts("year", [end for end in (low, high) if end is not None], kind)
    return Interval(
        None if low is None else ends[0],
        None if high is None else ends[-1],
    )


def _moments(part: str, interval: Interval, kind: pa.DataType) -> list[Point] | None:
    """Moments that together have every value of `part` in the interval; None if there are all."""
    if interval.low is None or interval.high is None:
        return None
    step = max(1, min(_NANOSECONDS[part], 86_400 * 10**9) // unit_nanoseconds(kind))
    count = (interval.high - interval.low) // step + 1
    if count > _PERIOD[part] * (31 if part == "month" else 1):
        return None
    # One moment an hour or a day, and the last one, misses none.
    return [*range(interval.low, interval.high, step), interval.high]


def _parts(part: str, points: Iterable[Point], kind: pa.DataType) -> list[int]:
    values = list(points)
    try:
        column = pa.array(values, kind)
    except (pa.ArrowException, OverflowError) as error:
        raise InvalidCallError(f"{values[:3]} are not of type {kind}") from error
    parts: list[int] = date_part(part, column).to_pylist()
    return parts


def _tried_test(
    field: RegionField, domains: Sequence[Domain], kinds: Sequence[pa.DataType]
) -> Test | None:
    """Evaluates the field for every combination of values that it allows, if they are few."""
    tried = [_few_values(domain, kind) for domain, kind in zip(domains, kinds, strict=True)]
    if any(values is None for values in tried):
        return _null_test(field, domains)
    lists = [values for values in tried if values is not None]
    rows = math.prod(map(len, lists))
    if rows > _MAX_TRIED:
        return None
    combinations = list(itertools.product(*lists))
    if not combinations:
        return lambda _: False
    columns = [
        pa.array(list(values), kind)
        for values, kind in zip(zip(*combinations, strict=True), kinds, strict=True)
    ]
    result = evaluate_columns(field, columns, rows)
    allowed = frozenset(region_values(result))

    def test(value: object) -> bool:
        return value in allowed or as_region_value(value, result.type) in allowed

    return test


def _null_test(field: RegionField, domains: Sequence[Domain]) -> Test | None:
    """A bucket is NULL exactly where its only column is."""
    if field.transform != "bucket" or field.native:
        return None
    domain = domains[0]
    if domain.null:
        return None
    return lambda value: value is not None


def _few_values(domain: Domain, kind: pa.DataType) -> list[object] | None:
    """Every value of the domain, NULL included; None when they are too many to try."""
    points = set(domain.points)
    for interval in domain.intervals:
        low, high = interval.low, interval.high
        if not (isinstance(low, int) and isinstance(high, int)) or high - low >= _MAX_TRIED:
            return None
        points.update(range(low, high + 1))
    if len(points) > _MAX_TRIED:
        return None
    if pa.types.is_fixed_size_binary(kind):
        points = {point for point in points if len(point) == kind.byte_width}
    values = python_values(points, kind)
    return [*values, None] if domain.null else values


def _same_units(field: RegionField, kind: pa.DataType) -> bool:
    """False if the column no longer has the type that the stored values were made from."""
    if not field.result_type:
        return True
    stored = type_of(field.result_type)
    return bool(stored == kind or (pa.types.is_integer(stored) and pa.types.is_integer(kind)))


def _point(value: object, kind: pa.DataType) -> Point | None:
    try:
        return point_of(as_region_value(value, kind), kind)
    except InexactError:
        return None
