"""LiveRowsExec: the rows of a table that are kept in memory, one a key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from exec_nodes.node import Node, Statistics
from memwal_native import LiveScan


@dataclass(frozen=True)
class LiveRowsExec(Node):
    """Yields the `output` columns of a scan of live rows. DataFusion runs it without Python."""

    rows: LiveScan
    output: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        return self.output

    @property
    def partitions(self) -> int:
        """One, which stops as soon as it has enough rows, with a limit."""
        return self.rows.partitions

    @property
    def statistics(self) -> Statistics:
        """The rows before filters; exact without filters."""
        return Statistics(*self.rows.count)

    def label(self) -> str:
        """`LiveRowsExec: rows=9, columns=[id], regions=4, chunks=1/1, filter=[val > 5]`."""
        return self.rows.label

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        yield from pa.RecordBatchReader.from_stream(self.rows.partition(partition))
