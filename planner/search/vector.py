"""The plan of a vector search (Specification 2, "Vector Search Queries")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.arrow.arrays import is_variable_list
from exec_nodes.base.columns import DISTANCE, QUERY_INDEX_FIELD
from exec_nodes.base.errors import InvalidCallError
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
from exec_nodes.vectors.column import FLOAT_METRICS, Matrix, Metric
from exec_nodes.vectors.nearest import Bounds, NearestQuery
from planner.model import Snapshot
from planner.predicates.condition import Condition
from planner.search.sources import bridged, searched

_ELEMENTS = {
    pa.float16(): np.float16,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
    pa.uint8(): np.uint8,
}


@dataclass(frozen=True, eq=False)
class VectorQuery:
    """The `k` live rows nearest to each query vector.

    Attributes:
        column: the vector column: fixed size lists of float16, float32, float64 or uint8, or
            lists of these.
        vectors: (queries, dimension). Each of several queries has its own `k` rows, and
            `query_index` (int32) gives the query of a row.
        k: how many rows; all rows if there are fewer.
        columns: the table's columns to return, before `_distance` (float32).
        filters: conjunctive; only rows that match all of them count.
        metric: `l2` (squared), `cosine` (1 - cos), `dot` (1 - dot product) or, of uint8,
            `hamming` (different bits). None: that of the column's index; without one `l2`, of
            uint8 `hamming`. An index with another metric is not used.
        nprobes: partitions of an IVF index to probe; more where not all rows are live and match.
        refine_factor: candidates of an index for each row, which are then measured exactly.
        ef: candidates that an HNSW graph keeps while it is searched.
        exact: measure all rows, whatever index there is.
        lower_bound: only rows at this distance or farther; measures all rows.
        upper_bound: only rows nearer than this.
        late: whether rows have lists of vectors; all vectors are one query then
            (`exec_nodes.vectors.late_interaction`).
    """

    column: str
    vectors: npt.NDArray[Any]
    k: int
    columns: tuple[str, ...]
    filters: tuple[Condition, ...] = ()
    metric: str | None = None
    nprobes: int | None = None
    refine_factor: int | None = None
    ef: int | None = None
    exact: bool = False
    lower_bound: float | None = None
    upper_bound: float | None = None
    late: bool = False

    @property
    def queries(self) -> int:
        """The number of queries that have nearest rows of their own."""
        return 1 if self.late else len(self.vectors)


def nearest_query(query: VectorQuery, schema: pa.Schema, index_metric: str | None) -> NearestQuery:
    """The query in the column's element type; `index_metric` is the metric of its index, if any.

    Raises InvalidCallError naming the value and the remedy.
    """
    kind = check_dimension(query, schema)
    metric = _metric(query, kind.value_type, index_metric)
    vectors = _vectors(query, kind)
    if metric == "cosine" and not vectors.any(axis=1).all():
        raise InvalidCallError(
            "the query is a zero vector, which has no cosine distance to anything: "
            "ask with another vector, or with metric='l2'"
        )
    for name in ("k", "nprobes", "refine_factor", "ef"):
        _check_count(name, getattr(query, name), optional=name != "k")
    return NearestQuery(
        query.column,
        vectors,
        query.k,
        metric,
        Bounds(_bound("lower_bound", query), _bound("upper_bound", query)),
        query.nprobes,
        query.refine_factor,
        query.ef,
        late=query.late,
    )


def output_schema(query: VectorQuery, schema: pa.Schema) -> pa.Schema:
    """The columns to return. Raises InvalidCallError for unknown or repeated ones."""
    unknown = [name for name in query.columns if name not in schema.names]
    if unknown:
        raise InvalidCallError(f"unknown columns {unknown}; the table has {schema.names}")
    if len(set(query.columns)) != len(query.columns):
        raise InvalidCallError(f"columns={list(query.columns)} names a column twice")
    clash = QUERY_INDEX_FIELD.name
    if clash in query.columns and query.queries > 1:
        raise InvalidCallError(
            f"a search for several vectors adds the column {clash!r}, which the table has too: "
            "leave it out of columns, or ask one vector at a time"
        )
    return pa.schema([schema.field(name) for name in query.columns])


def _vector_type(query: VectorQuery, schema: pa.Schema) -> pa.FixedSizeListType:
    column = query.column
    if column not in schema.names:
        raise InvalidCallError(f"unknown column {column!r}; the table has {schema.names}")
    kind = schema.field(column).type
    if query.late and is_variable_list(kind):
        kind = kind.value_type
    if not pa.types.is_fixed_size_list(kind) or kind.value_type not in _ELEMENTS:
        raise InvalidCallError(
            f"column {column!r} of type {schema.field(column).type} holds no vectors: a vector "
            "column has fixed size lists of float16, float32, float64 or uint8, or lists of these"
        )
    return kind


def _metric(query: VectorQuery, element: pa.DataType, index_metric: str | None) -> Metric:
    allowed: tuple[Metric, ...] = ("hamming",) if element == pa.uint8() else FLOAT_METRICS
    asked = query.metric if query.metric is not None else index_metric or allowed[0]
    for metric in allowed:
        if str(asked).lower() == metric:
            return metric
    raise InvalidCallError(
        f"metric={asked!r} does not measure vectors of {element} as in column {query.column!r}: "
        f"use one of {list(allowed)}"
    )


def check_dimension(query: VectorQuery, schema: pa.Schema) -> pa.FixedSizeListType:
    """The type of the searched column in a table of `schema`. Raises InvalidCallError unless the
    query vectors have as many values."""
    kind = _vector_type(query, schema)
    values, dimension = np.atleast_2d(query.vectors), kind.list_size
    if values.dtype.kind not in "fiu" or not values.size or values.ndim > 2:
        raise InvalidCallError(
            f"a query of shape {np.shape(query.vectors)} and type {values.dtype} is not a vector: "
            f"column {query.column!r} needs {dimension} numbers"
        )
    if values.shape[1] != dimension:
        raise InvalidCallError(
            f"the query has {values.shape[1]} dimensions, but column {query.column!r} has "
            f"{dimension}: ask with a vector of the same model"
        )
    return kind


def _vectors(query: VectorQuery, kind: pa.FixedSizeListType) -> Matrix:
    """The query vectors in the column's element type."""
    elements = np.atleast_2d(query.vectors)
    with np.errstate(over="ignore", invalid="ignore"):
        vectors = np.ascontiguousarray(elements, _ELEMENTS[kind.value_type])
    exact = kind.value_type == pa.uint8()
    right = vectors == elements if exact else np.isfinite(vectors)
    if not right.all():
        row, at = np.argwhere(~right)[0].tolist()
        raise InvalidCallError(
            f"element {at} of the query is {elements[row, at]}, but column {query.column!r} has "
            f"{kind.value_type}: every element must be {'0 to 255' if exact else 'finite in it'}"
        )
    return vectors


def _check_count(name: str, value: object, *, optional: bool) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InvalidCallError(f"{name}={value!r} must be a whole number, 1 or more")


def _bound(name: str, query: VectorQuery) -> float | None:
    value = getattr(query, name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or isnan(value):
        raise InvalidCallError(f"{name}={value!r} must be a distance, or None for no bound")
    low, high = query.lower_bound, query.upper_bound
    if low is not None and high is not None and not low < high:
        raise InvalidCallError(
            f"lower_bound={low!r} and upper_bound={high!r} leave no distance between them: "
            "lower_bound <= distance < upper_bound"
        )
    return float(value)


def plan_vector_search(query: VectorQuery, snapshot: Snapshot) -> TakeExec:
    """One KNNExec a source below what makes one answer of their candidates; the base table first,
    then each region's sources, newest first. Pure.

    Yields `query.columns`, `_distance` and for several vectors `query_index`: by query, the nearest
    first.
    Raises InvalidCallError for a query that does not fit the column, naming value and remedy.
    """
    schema = snapshot.info.schema
    index = vector_index(query.column, query.metric, snapshot.indexes)
    asked = nearest_query(query, schema, None if index is None else index.metric)
    if query.exact or query.lower_bound is not None or query.late:
        index = None
    snapshot = bridged(snapshot, index)
    output = output_schema(query, schema)
    regions = tuple([region.sources for region in snapshot.regions])
    stale = PlanStale(snapshot.base, regions, STALE_SETS, masks=snapshot.masks)
    masks = Masks(stale, matched=bool(snapshot.masks))
    read, pruned = searched(snapshot, query.filters)
    scans = tuple(
        [
            KNNExec(source, ordinal, asked, query.filters, masks, index_of(source, index))
            for ordinal, source in enumerate(stale.sources)
            if ordinal in read
        ]
    )
    # One partition for each source: FilterStaleExec reads each as far as it needs.
    union = UnionExec(scans, len(scans))
    live = FilterStaleExec(union, masks, snapshot.info.primary_key, asked.k, asked.queries)
    best = GlobalLimitExec(
        SortExec(live, DISTANCE, stale.sources, snapshot.info.key_schema, asked.k), asked.k
    )
    node = TakeExec(best, stale.sources, output)
    node.metrics.add(regions_pruned=pruned)
    return node


def vector_index(column: str, metric: str | None, indexes: Sequence[IndexInfo]) -> IndexInfo | None:
    """The first index on the column that measures as asked."""
    metric = None if metric is None else str(metric).lower()
    for index in indexes:
        if index.is_vector and index.column == column and metric in (None, index.metric):
            return index
    return None


def index_of(source: Source, index: IndexInfo | None) -> IndexInfo | None:
    """The index where a source may have it: MemTables have none."""
    return None if isinstance(source, MemTableSource) else index
