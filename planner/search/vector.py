"""The plan of a vector search (Specification 2, "Vector Search Queries")."""

from __future__ import annotations

from collections.abc import Sequence

from exec_nodes.base.columns import DISTANCE
from exec_nodes.base.index_info import IndexInfo
from exec_nodes.filter_stale_exec import FilterStaleExec
from exec_nodes.global_limit_exec import GlobalLimitExec
from exec_nodes.knn_exec import KNNExec
from exec_nodes.liveness.masks import Masks
from exec_nodes.liveness.stale_sets import STALE_SETS, PlanStale
from exec_nodes.sort_exec import SortExec
from exec_nodes.sources.memtable_source import MemTableSource
from exec_nodes.sources.source import Source
from exec_nodes.take_exec import TakeExec
from exec_nodes.union_exec import UnionExec
from planner.model import Snapshot
from planner.search.sources import bridged, searched
from planner.search.vector_query import VectorQuery, nearest_query, output_schema

__all__ = ["VectorQuery", "plan_vector_search"]


def plan_vector_search(query: VectorQuery, snapshot: Snapshot) -> TakeExec:
    """One KNNExec a source below what makes one answer of their candidates; the base table first,
    then each region's sources, newest first. Pure.

    Yields `query.columns`, `_distance` and for several vectors `query_index`: by query, the nearest
    first.
    Raises InvalidCallError for what can't be asked of the column, naming value and remedy.
    """
    schema = snapshot.info.schema
    index = vector_index(query, snapshot.indexes)
    asked = nearest_query(query, schema, None if index is None else index.metric)
    if query.exact or query.lower_bound is not None:
        index = None
    snapshot = bridged(snapshot, index)
    output = output_schema(query, schema)
    regions = tuple([region.sources for region in snapshot.regions])
    stale = PlanStale(snapshot.base, regions, STALE_SETS)
    masks = Masks(stale)
    read, pruned = searched(snapshot, query.filters)
    scans = tuple(
        [
            KNNExec(source, ordinal, asked, query.filters, masks, _index_of(source, index))
            for ordinal, source in enumerate(stale.sources)
            if ordinal in read
        ]
    )
    # A partition each source: FilterStaleExec asks each on as long as it needs to.
    union = UnionExec(scans, len(scans))
    live = FilterStaleExec(union, masks, snapshot.info.primary_key, asked.k, len(asked.vectors))
    best = GlobalLimitExec(SortExec(live, DISTANCE), asked.k)
    node = TakeExec(best, stale.sources, output)
    node.metrics.add(regions_pruned=pruned)
    return node


def vector_index(query: VectorQuery, indexes: Sequence[IndexInfo]) -> IndexInfo | None:
    """The first index on the column that measures as asked."""
    metric = None if query.metric is None else str(query.metric).lower()
    for index in indexes:
        if index.is_vector and index.column == query.column and metric in (None, index.metric):
            return index
    return None


def _index_of(source: Source, index: IndexInfo | None) -> IndexInfo | None:
    """The index where a source may have it: MemTables have none."""
    return None if isinstance(source, MemTableSource) else index
