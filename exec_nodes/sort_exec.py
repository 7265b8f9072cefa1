"""SortExec: orders the candidates of all sources, the best first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from exec_nodes.base.columns import QUERY, ROW_ADDRESS, SOURCE
from exec_nodes.unary_node import UnaryNode


@dataclass(frozen=True)
class SortExec(UnaryNode):
    """Sorts narrow rows (see `base.columns`) by `column`, those of each query for themselves.

    Equal values are ordered by source and then by row address, so that a search gives the same
    rows every time. Yields one batch.
    """

    column: str
    descending: bool = False

    @property
    def partitions(self) -> int:
        """One, of all of the child's."""
        return 1

    def label(self) -> str:
        """`SortExec: order_by=[_distance ASC]`."""
        queries = f"{QUERY} ASC, " if QUERY in self.schema.names else ""
        return f"SortExec: order_by=[{queries}{self.column} {'DESC' if self.descending else 'ASC'}]"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        parts = range(self.child.partitions)
        batches = [batch for part in parts for batch in self.child.execute(part)]
        if not batches:
            return
        rows = pa.concat_batches(batches)
        values = rows.column(self.column).to_numpy()
        keys = [
            rows.column(ROW_ADDRESS).to_numpy(),
            rows.column(SOURCE).to_numpy(),
            -values if self.descending else values,
        ]
        if QUERY in rows.schema.names:
            keys.append(rows.column(QUERY).to_numpy())
        yield rows.take(pa.array(np.lexsort(keys)))
