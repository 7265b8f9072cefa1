"""GlobalLimitExec: the first rows of all that there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from exec_nodes.arrow.large_columns import concatenated
from exec_nodes.base.columns import QUERY
from exec_nodes.node import Statistics
from exec_nodes.unary_node import UnaryNode


@dataclass(frozen=True)
class GlobalLimitExec(UnaryNode):
    """Yields the child's first `limit` rows; where a search has a batch of queries, the first of
    each query. The child is one partition, sorted, with the queries' rows one after the other.
    """

    limit: int

    @property
    def statistics(self) -> Statistics:
        rows = self.child.statistics.num_rows
        if rows is not None and QUERY not in self.schema.names:
            rows = min(rows, self.limit)
        return Statistics(rows, False)

    def label(self) -> str:
        return f"GlobalLimitExec: limit={self.limit}"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        batches = list(self.child.execute(partition))
        if not batches:
            return
        rows = batches[0] if len(batches) == 1 else concatenated(batches)
        if QUERY not in rows.schema.names:
            yield rows.slice(0, self.limit)
            return
        queries = rows.column(QUERY).to_numpy()
        rank = np.arange(len(queries)) - queries.searchsorted(queries)
        yield rows.take(pa.array(np.flatnonzero(rank < self.limit)))
