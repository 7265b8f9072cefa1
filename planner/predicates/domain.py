"""Domains: the values of a column that can make a predicate true.

A domain is a superset, made of intervals and a flag for NULL. Values are `str`, `bytes` or `int`:
integers and booleans as they are, dates, times and timestamps in the unit of the column, decimals
unscaled (the value times ten to the scale). Integer intervals are always closed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

# int, str or bytes; all values of one domain are of one kind.
Point: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Interval:
    """The values from `low` to `high`; None is unbounded, an open end is not in it."""

    low: Point | None = None
    high: Point | None = None
    low_open: bool = False
    high_open: bool = False

    @property
    def is_empty(self) -> bool:
        """True when no value can be in it."""
        if self.low is None or self.high is None:
            return False
        if self.low == self.high:
            return self.low_open or self.high_open
        return bool(self.low > self.high)

    @property
    def is_point(self) -> bool:
        """True for exactly one value."""
        return self.low is not None and self.low == self.high and not self.is_empty

    def __contains__(self, value: Point) -> bool:
        if self.low is not None and (value < self.low or (self.low_open and value == self.low)):
            return False
        if self.high is None:
            return True
        return not (value > self.high or (self.high_open and value == self.high))

    def meet(self, other: Interval) -> Interval:
        """The values in both."""
        low, low_open = self.low, self.low_open
        if other.low is not None and (low is None or other.low >= low):
            low_open = other.low_open or (low_open and other.low == low)
            low = other.low
        high, high_open = self.high, self.high_open
        if other.high is not None and (high is None or other.high <= high):
            high_open = other.high_open or (high_open and other.high == high)
            high = other.high
        return Interval(low, high, low_open, high_open)


@dataclass(frozen=True, slots=True)
class Domain:
    """Points, intervals, and NULL if `null`."""

    points: frozenset[Point] = frozenset()
    intervals: tuple[Interval, ...] = ()
    null: bool = False

    @property
    def is_empty(self) -> bool:
        """True when nothing is in it, not even NULL."""
        return not (self.points or self.intervals or self.null)

    @property
    def is_finite(self) -> bool:
        """True when it has points only (and NULL perhaps)."""
        return not self.intervals

    def __contains__(self, value: Point) -> bool:
        return value in self.points or any(value in interval for interval in self.intervals)

    def meets(self, interval: Interval) -> bool:
        """True when some value of `interval` may be in the domain."""
        if any(point in interval for point in self.points):
            return True
        return any(not interval.meet(own).is_empty for own in self.intervals)

    def meet(self, other: Domain) -> Domain:
        """The intersection."""
        points = {p for p in self.points if p in other} | {p for p in other.points if p in self}
        met = (a.meet(b) for a in self.intervals for b in other.intervals)
        return domain_of(points, met, self.null and other.null)


ANYTHING = Domain(intervals=(Interval(),), null=True)
NOT_NULL = Domain(intervals=(Interval(),))
ONLY_NULL = Domain(null=True)
NOTHING = Domain()


def domain_of(
    points: Iterable[Point] = (), intervals: Iterable[Interval] = (), null: bool = False
) -> Domain:
    """A domain, with intervals of one value turned into points and empty ones left out."""
    singles = set(points)
    kept = []
    for interval in intervals:
        if interval.is_point:
            singles.add(interval.low)
        elif not interval.is_empty:
            kept.append(interval)
    return Domain(frozenset(singles), tuple(dict.fromkeys(kept)), null)
