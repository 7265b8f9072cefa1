"""What a vector search asks of every source."""

from __future__ import annotations

from dataclasses import dataclass

from exec_nodes.vectors.metrics import Matrix, Metric
from exec_nodes.vectors.nearest import NO_BOUNDS, Bounds


@dataclass(frozen=True, eq=False)
class NearestQuery:
    """The `k` nearest rows of each query, as `_distance`.

    Attributes:
        column: the vector column, a fixed size list.
        vectors: (queries, dimension), of the column's element type.
        metric: how distances are measured.
        bounds: which distances count.
        nprobes: partitions of an IVF index to probe where all rows are live and match; more are
            where fewer are.
        refine_factor: candidates of an index for each row asked for, which are then measured
            exactly; None: as many as the kind of index needs.
        ef: candidates that an HNSW graph keeps while it is searched.
    """

    column: str
    vectors: Matrix
    k: int
    metric: Metric
    bounds: Bounds = NO_BOUNDS
    nprobes: int | None = None
    refine_factor: int | None = None
    ef: int | None = None

    @property
    def batch(self) -> bool:
        """Whether rows must say which query they are for."""
        return len(self.vectors) > 1
