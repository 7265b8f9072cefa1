"""KNNExec: the nearest vectors of one source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import numpy as np
import pyarrow as pa

from exec_nodes.base.columns import BATCH_DISTANCE_ROWS, DISTANCE_ROWS, Filter
from exec_nodes.base.index_info import IndexInfo
from exec_nodes.explain.labels import conditions, source_label
from exec_nodes.liveness.masks import Masks
from exec_nodes.node import Node, Statistics
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.sources.source import Source
from exec_nodes.vectors.nearest import Candidates, NearestQuery
from exec_nodes.vectors.resident import is_resident
from exec_nodes.vectors.search import SourceSearch

# Candidates beyond those asked for where some may turn out to be stale.
_SPARE = 4


@dataclass(frozen=True)
class KNNExec(Node):
    """Yields narrow rows (see `base.columns`) of the rows of one source that are nearest to each
    query, match all filters and are not masked: by query, then the nearest first, with exact
    distances (Specification 2, "Vector Search Queries").

    The first batch has the `k` nearest rows and some to spare, and each batch includes all rows as
    near as its last one. A second batch follows on demand, only if not all of the source's rows
    that might be stale are masked: the `k` nearest of the live rows, except those of the first.
    Nothing is cut before liveness and filters are known, so a reader of all batches has every row
    of the source that can be among the best `k`; for an `Order` of its query also those that may be
    as near.

    `index` is the base table's index on the column; None where distances are taken from all
    vectors. The index is not asked either where all vectors are in memory, or few rows match.
    Counts searched_in_memory, searched_by_index and searched_by_reading.
    """

    source: Source
    ordinal: int
    query: NearestQuery
    filters: tuple[Filter, ...]
    masks: Masks
    index: IndexInfo | None

    @property
    def schema(self) -> pa.Schema:
        """`_rowaddr`, `_source`, `_distance`, and `_query` for a batch of queries."""
        return BATCH_DISTANCE_ROWS if self.query.queries > 1 else DISTANCE_ROWS

    @property
    def statistics(self) -> Statistics:
        """At most `k` rows of each query."""
        return Statistics(self.query.k * self.query.queries, False)

    def label(self) -> str:
        """`KNNExec: base_table[gen=-1], version=7, column=v, k=10, metric=l2, index=brute_force,
        filter=[]`, or `index=v_idx(IVF_PQ)`; `index=in_memory` where there is one, and all vectors
        are in memory by now. `order=exact` or `order=approximate` where DataFusion sorts."""
        query = self.query
        return (
            f"KNNExec: {source_label(self.source)}, column={query.column}, k={query.k}, "
            f"metric={query.metric}, {self._shown_order()}index={self._shown_index()}, "
            f"filter=[{conditions(self.filters)}]"
        )

    def _shown_order(self) -> str:
        order = self.query.order
        return "" if order is None else f"order={'exact' if order.exact else 'approximate'}, "

    def _shown_index(self) -> str:
        """The index that a source that is not open yet may have."""
        source, index = self.source, self.index
        if index is None or not isinstance(source, LanceSource):
            return "brute_force"
        if source.is_open and not source.has_index(index.name):
            return "brute_force"
        resident = source.is_open and is_resident(source, self.query.column)
        return "in_memory" if resident else f"{index.name}({index.kind})"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        search = SourceSearch(self.source, self.query, self.filters, self.index)
        sources = self.masks.unmasked(self.ordinal)
        most = self.query.k + (self._spare(sources) if sources else 0)
        first = search.nearest(most, self.masks.of(self.ordinal))
        if len(first.addresses):
            yield self._batch(first)
        if not sources or first.counts(self.query.queries).max() < most:
            return  # nothing is stale, or there is nothing else
        then = search.nearest(self.query.k, self.masks.exact(self.ordinal)).without(first)
        if len(then):
            yield self._batch(then)

    def _spare(self, sources: tuple[Source, ...]) -> int:
        replaced = min(1.0, sum(source.rows for source in sources) / max(1, self.source.rows))
        return ceil(2 * self.query.k * replaced) + _SPARE

    def _batch(self, candidates: Candidates) -> pa.RecordBatch:
        ordinals = np.full(len(candidates.addresses), self.ordinal, np.int32)
        columns = [candidates.addresses, ordinals, candidates.distances, candidates.queries]
        schema = self.schema
        arrays = [pa.array(values) for values in columns[: len(schema)]]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
