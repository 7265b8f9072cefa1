"""NearestExec: rows that hold the first ones of a sort by distance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.base.columns import DISTANCE
from exec_nodes.node import Node, Statistics


@dataclass(frozen=True)
class NearestExec(Node):
    """Yields the columns of `scan` of some of its rows, in no order: all that DataFusion may put
    among the first `k` when it sorts them by a distance.

    They are the rows of `near`, which has `_distance` too. Where fewer than `k` of these have one,
    rows without a distance are among the first `k`: then it yields all rows of `scan`, which does
    not run otherwise. Counts scanned, 1 if it did.
    """

    near: Node
    scan: Node
    k: int

    @property
    def schema(self) -> pa.Schema:
        return self.scan.schema

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.near, self.scan)

    @property
    def statistics(self) -> Statistics:
        return Statistics(self.near.statistics.num_rows, False)

    def label(self) -> str:
        return f"NearestExec: k={self.k}"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        near = list(_batches(self.near))
        measured = sum(pc.sum(pc.is_finite(batch.column(DISTANCE))).as_py() or 0 for batch in near)
        self.metrics.add(scanned=int(measured < self.k))
        if measured < self.k:
            yield from _batches(self.scan)
            return
        schema = self.schema
        for batch in near:
            yield batch.select(schema.names)


def _batches(node: Node) -> Iterator[pa.RecordBatch]:
    return (batch for part in range(node.partitions) for batch in node.execute(part))
