"""The rows that a sort by distances may put first where DataFusion computes them.

It computes in float64 as well, but in another order of summation and without powers: of two rows
that are about equally far, either may come first. Its results for infinities and NaN are its own,
and rows without a distance come first or last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from exec_nodes.base.columns import RowAddresses
from exec_nodes.vectors.column import Flags, Metric, VectorColumn
from exec_nodes.vectors.nearest import Bounds, Candidates, NearestQuery, nearest, nearest_of

# Extra candidates, so that most searches see in one pass that no other row is as near.
_SPARE = 8
# Bounds above the error of rounding to float32: relative, and absolute near 0.
_ROUNDED = 2.0**-20
_LEAST = 1e-44
# A bound above the relative error of a sum of products, for each element of a vector.
_SUMMED = 2.0**-50


@dataclass(frozen=True, eq=False)
class Contenders:
    """The rows that may be among the first few.

    Attributes:
        near: the nearest, and all that may be as near as the farthest of them.
        others: addresses of rows that may be anywhere in the order.
        longest: the length of the longest vector that was measured.
    """

    near: Candidates
    others: RowAddresses
    longest: float


def contenders(
    column: VectorColumn, query: NearestQuery, most: int, counts: Flags | None
) -> Contenders:
    """The rows of a source, of those whose flag in `counts` is set, that may be among the first
    `most`."""
    codes = column.codes(query.metric)
    void, odd = (np.frombuffer(rows, np.int64) for rows in codes.unmeasured(len(column)))
    if counts is not None:
        void, odd = void[counts[void]], odd[counts[odd]]
    if len(odd):
        counts = np.ones(len(column), np.bool_) if counts is None else counts.copy()
        counts[odd] = False
    asked = most + _SPARE
    near = nearest(column, query.vectors, asked, query.metric, counts=counts)
    if len(near) >= asked:
        bounds = Bounds(upper=_reach(query, near, most, codes.longest))
        if bounds.met(near.distances).all():
            everything = len(column)
            near = nearest(
                column, query.vectors, everything, query.metric, counts=counts, bounds=bounds
            )
    first = query.order is not None and query.order.nulls_first
    others = np.sort(np.concatenate([void, odd])) if first else odd
    return Contenders(near, column.addresses[others], codes.longest)


def ordered(parts: Iterable[Contenders], query: NearestQuery, most: int) -> Candidates:
    """The contenders of several parts of a source: the nearest first, then those that may be
    anywhere, with NaN for a distance."""
    parts = list(parts)
    near = nearest_of([part.near for part in parts], sum(len(part.near) for part in parts))
    if len(near) > most:
        longest = max(part.longest for part in parts)
        near = near.where(Bounds(upper=_reach(query, near, most, longest)).met(near.distances))
    others = np.concatenate([np.empty(0, np.uint64), *(part.others for part in parts)])
    return Candidates(
        np.zeros(len(near) + len(others), np.int32),
        np.concatenate([near.addresses, others]),
        np.concatenate([near.distances, np.full(len(others), np.nan, np.float32)]),
    )


def _reach(query: NearestQuery, near: Candidates, most: int, longest: float) -> float:
    """Rows from this distance on are farther than the `most`-th, however they are computed."""
    distance = float(near.distances[most - 1])
    summed = query.vectors.shape[1] * _SUMMED + _SUMMED
    absolute: dict[Metric, float] = {
        "l2": 0.0,
        "cosine": summed,
        "dot": summed * (1.0 + float(np.linalg.norm(query.vectors)) * longest),
    }
    reach = distance + abs(distance) * _ROUNDED + 4 * absolute[query.metric] + _LEAST
    return float(np.nextafter(np.float32(reach), np.float32(np.inf)))
