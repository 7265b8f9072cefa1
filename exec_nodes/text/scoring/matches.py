"""Rows and their scores, which the nodes of a query return, and their combinations.

Rows are numbers in ascending order, each once. Where they are below a known `size`, long inputs
go through arrays of that size instead of sorting: a common word is in most documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from exec_nodes.postings.bm25 import Scores

Rows: TypeAlias = npt.NDArray[Any]
Places: TypeAlias = npt.NDArray[np.intp]
Flags: TypeAlias = npt.NDArray[np.bool_]

# An array of the size costs less than sorting or searching more than this part of it.
DENSE_PART: Final = 32


@dataclass(frozen=True, slots=True)
class Matches:
    """The rows that a query matches, ascending, and the score of each."""

    rows: Rows
    scores: Scores

    def __len__(self) -> int:
        return len(self.rows)

    def filter(self, keep: Flags) -> Matches:
        """The rows of the flags that are set."""
        return self if keep.all() else Matches(self.rows[keep], self.scores[keep])

    def times(self, factor: np.float32 | int) -> Matches:
        """The same rows with scores multiplied."""
        return self if factor == 1 else Matches(self.rows, self.scores * np.float32(factor))


def no_matches(rows: Rows) -> Matches:
    """Nothing, in the number type of `rows`."""
    return Matches(rows[:0], np.empty(0, np.float32))


def locate(among: Rows, rows: Rows, size: int | None) -> tuple[Places, Flags]:
    """For each of `rows`, its position in `among`, and whether it is there."""
    if not len(among):
        return np.zeros(len(rows), np.intp), np.zeros(len(rows), np.bool_)
    if size is not None and len(rows) * DENSE_PART > size:
        table = np.full(size, -1, np.int32)
        table[among] = np.arange(len(among), dtype=np.int32)
        slots = table[rows]
        return slots.astype(np.intp), slots >= 0
    places = np.minimum(np.searchsorted(among, rows), len(among) - 1)
    return places, among[places] == rows


def common_rows(parts: Sequence[Rows], size: int | None) -> Rows:
    """The rows that are in every part."""
    first, *others = sorted(parts, key=len)
    for other in others:
        first = first[locate(other, first, size)[1]]
    return first


def sum_where(
    parts: Sequence[Matches], required: int, size: int | None, counts: Sequence[int] | None = None
) -> Matches:
    """The rows that are in at least `required` of the parts (one or more of them, given in the
    order in which scores are added), with the sum of their scores.

    `counts` says as how many parts each one counts.
    """
    weights = counts or (1,) * len(parts)
    if required <= 1 and len(parts) == 1:
        return parts[0]
    if required == sum(weights):
        return _sum_common(parts, size)
    total = sum(map(len, parts))
    if size is not None and total * DENSE_PART > size:
        rows = _dense_union(parts, weights, required, size)
    else:
        rows = _sparse_union(parts, weights, required)
    scores = np.zeros(len(rows), np.float32)
    for part in parts:
        places, present = locate(rows, part.rows, size)
        scores[places[present]] += part.scores[present]
    return Matches(rows, scores)


def best_of(parts: Sequence[Matches], size: int | None) -> Matches:
    """The rows that are in any of the parts (one or more), with the highest of their scores."""
    if len(parts) == 1:
        return parts[0]
    rows = _sparse_union(parts, (1,) * len(parts), 1)
    scores = np.full(len(rows), -np.inf, np.float32)
    for part in parts:
        places = locate(rows, part.rows, size)[0]
        scores[places] = np.maximum(scores[places], part.scores)
    return Matches(rows, scores)


def added(base: Matches, others: Sequence[Matches], required: int, size: int | None) -> Matches:
    """The rows of `base` that are in at least `required` of the others; scores of those are added.

    None of the others is required if that is 0.
    """
    scores = base.scores.copy()
    holding = np.zeros(len(base), np.int32)
    for other in others:
        places, present = locate(other.rows, base.rows, size)
        scores[present] += other.scores[places[present]]
        holding += present
    return Matches(base.rows, scores).filter(holding >= required)


def without(base: Matches, other: Matches, size: int | None) -> Matches:
    """The rows of `base` that are not in the other."""
    return base.filter(~locate(other.rows, base.rows, size)[1])


def _sum_common(parts: Sequence[Matches], size: int | None) -> Matches:
    rows = common_rows([part.rows for part in parts], size)
    scores = np.zeros(len(rows), np.float32)
    for part in parts:
        same = len(part) == len(rows)
        scores += part.scores if same else part.scores[locate(part.rows, rows, size)[0]]
    return Matches(rows, scores)


def _dense_union(
    parts: Sequence[Matches], weights: Sequence[int], required: int, size: int
) -> Rows:
    holding = np.zeros(size, np.int32)
    for part, weight in zip(parts, weights, strict=True):
        holding[part.rows] += weight
    return np.flatnonzero(holding >= max(required, 1))


def _sparse_union(parts: Sequence[Matches], weights: Sequence[int], required: int) -> Rows:
    rows = np.unique(np.concatenate([part.rows for part in parts]))
    if required <= 1:
        return rows
    holding = np.zeros(len(rows), np.int32)
    for part, weight in zip(parts, weights, strict=True):
        holding[np.searchsorted(rows, part.rows)] += weight
    return rows[holding >= required]
