"""Exhaustive search: the exact nearest vectors among those in memory.

A kernel reads a copy of the vectors that has one byte an element, and bounds on what each byte
leaves out; whatever may be among the nearest within these bounds is then measured exactly. 200,000
vectors of 64 float32 take 0.4 ms on 2 cores, and a quarter of the memory's bandwidth that reading
the vectors themselves would take.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from exec_nodes.base.columns import RowAddresses
from exec_nodes.vectors.column import (
    Addresses,
    Distances,
    Flags,
    Matrix,
    Metric,
    Positions,
    Vector,
    VectorColumn,
    different_bits,
    distances,
)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Rows of one source, by query and then the nearest first; equally near ones by address.

    Attributes:
        queries: int32, the place of the query in its batch.
        addresses: uint64, the row.
        distances: float32, exact; NaN, after all others, for further rows that an `Order` needs.
    """

    queries: npt.NDArray[np.int32]
    addresses: RowAddresses
    distances: Distances

    def __len__(self) -> int:
        return len(self.addresses)

    @classmethod
    def of(cls, results: Sequence[tuple[RowAddresses, Distances]], first: int = 0) -> Candidates:
        """Candidates of the addresses and distances found for each query, in order; `first` is the
        number of the first query."""
        if len(results) == 1:
            [(addresses, distances)] = results
            return cls(np.full(len(addresses), first, np.int32), addresses, distances)
        counts = [len(addresses) for addresses, _ in results]
        places = np.arange(first, first + len(results), dtype=np.int32)
        return cls(
            np.repeat(places, counts),
            np.concatenate([np.empty(0, np.uint64), *(addresses for addresses, _ in results)]),
            np.concatenate([np.empty(0, np.float32), *(distances for _, distances in results)]),
        )

    def counts(self, queries: int) -> npt.NDArray[np.int64]:
        """The number of rows of each query that have a distance."""
        return np.bincount(self.queries[~np.isnan(self.distances)], minlength=queries)

    def ranks(self, most: int) -> npt.NDArray[np.int64]:
        """The rank of each row within its query, from 0; rows as near as the `most`-th share its
        rank."""
        first = self.queries.searchsorted(self.queries)
        ranks = np.arange(len(self)) - first
        beyond = np.flatnonzero(ranks >= most)
        last = first[beyond] + most - 1
        tied = beyond[self.distances[beyond] == self.distances[last]]
        ranks[tied] = most - 1
        return ranks

    def where(self, kept: npt.NDArray[np.bool_]) -> Candidates:
        """The candidates for which `kept` is true."""
        if kept.all():
            return self
        return Candidates(self.queries[kept], self.addresses[kept], self.distances[kept])

    def without(self, others: Candidates) -> Candidates:
        """The candidates that are not among `others`."""
        if not len(others):
            return self
        pair = np.dtype([("query", np.int32), ("address", np.uint64)])
        mine, theirs = np.empty(len(self), pair), np.empty(len(others), pair)
        for pairs, nearest in ((mine, self), (theirs, others)):
            pairs["query"], pairs["address"] = nearest.queries, nearest.addresses
        return self.where(~np.isin(mine, theirs))


def nearest_of(parts: Iterable[Candidates], most: int) -> Candidates:
    """The `most` nearest rows of each query among all parts, and all as near as the last of
    these."""
    parts = list(parts)
    if len(parts) == 1:
        together = parts[0]
    else:
        together = Candidates(
            np.concatenate([np.empty(0, np.int32), *(p.queries for p in parts)]),
            np.concatenate([np.empty(0, np.uint64), *(p.addresses for p in parts)]),
            np.concatenate([np.empty(0, np.float32), *(p.distances for p in parts)]),
        )
        order = np.lexsort((together.addresses, together.distances, together.queries))
        together = Candidates(
            together.queries[order], together.addresses[order], together.distances[order]
        )
    return together.where(together.ranks(most) < most)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The range of distances that count: `lower` <= distance < `upper`, as Lance's
    `distance_range`."""

    lower: float | None = None
    upper: float | None = None

    def met(self, distances: Distances) -> npt.NDArray[np.bool_]:
        """One flag a distance; NaN never counts."""
        met = ~np.isnan(distances)
        if self.lower is not None:
            met &= distances >= np.float32(self.lower)
        if self.upper is not None:
            met &= distances < np.float32(self.upper)
        return met


NO_BOUNDS = Bounds()


def nearest(
    column: VectorColumn,
    queries: Matrix,
    most: int,
    metric: Metric,
    *,
    counts: Flags | None = None,
    bounds: Bounds = NO_BOUNDS,
) -> Candidates:
    """The `most` nearest rows of each of `queries` (queries, dimension), by exact distance, and all
    as near as the last of these. Only rows whose flag in `counts` is set count; None counts all.
    Rows without a distance never count.
    """
    rows = len(column)
    if not rows:
        return Candidates.of([])
    if metric == "hamming":
        best = _of_bits(column, queries, most, counts, bounds)
        pairs = zip(queries, best, strict=True)
        return Candidates.of(
            [measured(column, own, query, most, metric, bounds) for query, own in pairs]
        )
    allowed = _both(counts, column.valid)
    nearest_rows = column.codes(metric).nearest(
        queries.astype(np.float64),
        most,
        chunks=column.chunks,
        rows=rows,
        allowed=None if allowed is None else allowed.view(np.uint8),
        least=bounds.lower,
        below=bounds.upper,
    )
    return Candidates.of(
        [
            (column.addresses[np.frombuffer(own, np.int64)], np.frombuffer(away, np.float32))
            for own, away in nearest_rows
        ]
    )


def measured(
    column: VectorColumn,
    rows: Positions,
    query: Vector,
    most: int,
    metric: Metric,
    bounds: Bounds = NO_BOUNDS,
) -> tuple[Addresses, Distances]:
    """The `most` nearest of the rows at these ascending positions, within the bounds and by exact
    distance, the nearest first, and all as near as the last of these."""
    exact = distances(metric, column.rows(rows), query)
    met = bounds.met(exact)
    if column.valid is not None:
        met &= column.valid[rows]
    kept = np.flatnonzero(met)
    order = kept[np.argsort(exact[kept], kind="stable")]
    if most < len(order):
        order = order[: exact[order].searchsorted(exact[order[most - 1]], "right")]
    return column.addresses[rows[order]], exact[order]


def _of_bits(
    column: VectorColumn, queries: Matrix, most: int, counts: Flags | None, bounds: Bounds
) -> Iterator[Positions]:
    """For each query the rows that hold its nearest, by position; of vectors of bits."""
    counted = _both(counts, column.valid)
    rows = np.arange(len(column)) if counted is None else np.flatnonzero(counted)
    for query in queries:
        bits = np.concatenate([different_bits(chunk, query) for chunk in column.chunks])[rows]
        met = np.flatnonzero(bounds.met(bits.astype(np.float32)))
        if most < len(met):
            farthest = np.partition(bits[met], most - 1)[most - 1]
            met = met[bits[met] <= farthest]
        yield rows[met]


def _both(flags: Flags | None, other: Flags | None) -> Flags | None:
    """The rows where both are true; None is true everywhere."""
    if flags is None or other is None:
        return other if flags is None else flags
    return flags & other


@dataclass(frozen=True, slots=True)
class Order:
    """A sort by distances that DataFusion computes from the same vectors, one query's.

    Attributes:
        exact: whether every row counts that may be among the first; else those that an index finds.
        nulls_first: whether rows without a distance come first.
    """

    exact: bool
    nulls_first: bool


@dataclass(frozen=True, eq=False)
class NearestQuery:
    """The `k` nearest rows of each query, as `_distance`.

    Attributes:
        column: the vector column, a fixed size list.
        vectors: (queries, dimension), of the column's element type.
        metric: how distances are measured.
        bounds: the range of distances that count.
        nprobes: partitions of an IVF index to probe if all rows are live and match; otherwise more
            are.
        refine_factor: candidates of an index per requested row, which are then measured exactly;
            None: as many as the kind of index needs.
        ef: candidates that an HNSW graph keeps during the search.
        order: the sort that DataFusion does afterwards, for which more rows are found; None: the
            rows are in order.
        late: whether rows have several vectors, and all of `vectors` are one query, see
            `late_interaction`.
    """

    column: str
    vectors: Matrix
    k: int
    metric: Metric
    bounds: Bounds = NO_BOUNDS
    nprobes: int | None = None
    refine_factor: int | None = None
    ef: int | None = None
    order: Order | None = None
    late: bool = False

    @property
    def queries(self) -> int:
        """The number of queries that have nearest rows of their own."""
        return 1 if self.late else len(self.vectors)
