"""The plan of rows that DataFusion sorts by a distance to keep the first few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from exec_nodes.base.columns import DISTANCE
from exec_nodes.deduplicate_exec import DeduplicateExec
from exec_nodes.filter_stale_exec import FilterStaleExec
from exec_nodes.knn_exec import KNNExec
from exec_nodes.liveness.masks import Masks
from exec_nodes.liveness.stale_sets import STALE_SETS, PlanStale
from exec_nodes.nearest_exec import NearestExec
from exec_nodes.node import Node
from exec_nodes.take_exec import TakeExec
from exec_nodes.union_exec import UnionExec
from exec_nodes.vectors.column import FLOAT_METRICS, Metric
from exec_nodes.vectors.nearest import NearestQuery, Order
from planner.model import Query, Snapshot
from planner.search.sources import bridged, searched
from planner.search.vector import index_of, vector_index

# The squares of lengths between which distances can be told from their rounding.
_SHORTEST, _LONGEST = 1e-30, 1e30


@dataclass(frozen=True, eq=False)
class Nearest:
    """The first `k` rows by the distance of a vector column to one vector.

    Attributes:
        metric: how DataFusion measures: `l2`, the root of the square, `cosine`, or `dot`, by which
            the greatest product comes first.
        order: how it sorts.
        is_filtered: whether the query has conditions.
    """

    column: str
    metric: Metric
    vector: Sequence[float]
    k: int
    order: Order
    is_filtered: bool


def plan_nearest(
    query: Query, nearest: Nearest, scan: Node, snapshot: Snapshot
) -> NearestExec | None:
    """One KNNExec a source, as of a vector search, over what `scan` reads; None where that is
    better: where it looks keys up or stops after some rows, for vectors whose distances can't be
    told from their rounding, and where conditions are not applied by the scan. Pure.

    Yields the columns of the scan of at least the rows that may be among the first `k`.
    """
    schema = snapshot.info.schema
    if not isinstance(scan, DeduplicateExec) or query.limit is not None:
        return None
    if DISTANCE in query.columns or bool(query.filters) != nearest.is_filtered:
        return None
    vector = np.atleast_2d(np.asarray(nearest.vector, np.float64))
    if not _can_measure(vector, schema.field(nearest.column).type, nearest.metric):
        return None
    order = nearest.order
    asked = NearestQuery(nearest.column, vector, nearest.k, nearest.metric, order=order)
    index = None if order.exact else vector_index(asked.column, asked.metric, snapshot.indexes)
    snapshot = bridged(snapshot, index)
    stale = PlanStale(
        snapshot.base, tuple(region.sources for region in snapshot.regions), STALE_SETS
    )
    masks = Masks(stale)
    read, pruned = searched(snapshot, query.filters)
    scans = tuple(
        KNNExec(source, ordinal, asked, query.filters, masks, index_of(source, index))
        for ordinal, source in enumerate(stale.sources)
        if ordinal in read
    )
    if not scans:
        return None
    live = FilterStaleExec(UnionExec(scans, len(scans)), masks, snapshot.info.primary_key, asked.k)
    near = TakeExec(live, stale.sources, pa.schema([schema.field(name) for name in query.columns]))
    near.metrics.add(regions_pruned=pruned)
    return NearestExec(near, scan, asked.k)


def _can_measure(vector: np.ndarray, kind: pa.DataType, metric: Metric) -> bool:
    elements = kind.value_type if pa.types.is_fixed_size_list(kind) else None
    if elements is None or not pa.types.is_floating(elements) or metric not in FLOAT_METRICS:
        return False
    with np.errstate(over="ignore"):
        square = float((vector * vector).sum())
    return _SHORTEST <= square < _LONGEST or (square == 0 and metric != "cosine")
