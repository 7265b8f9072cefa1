"""LiveRowsExec: the rows of a table that are kept in memory, one a key."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import memwal_native
from exec_nodes.base.columns import Filter
from exec_nodes.explain.labels import conditions
from exec_nodes.node import Node, Statistics
from exec_nodes.sources.memory_scan import meeting

_ALL = memwal_native.LiveRows(np.empty(0, np.uint64), np.empty(0, np.uint64))


@dataclass(frozen=True)
class LiveRowsExec(Node):
    """Yields the `output` columns of those rows of `batches` that meet every filter. The batches
    are of one state of the table, with each key once; they have the columns of the filters too.

    `kept` is the number of rows in memory, and `regions` that of the table's regions.
    """

    batches: Sequence[pa.RecordBatch]
    output: pa.Schema
    filters: tuple[Filter, ...]
    limit: int | None
    kept: int
    regions: int

    @property
    def schema(self) -> pa.Schema:
        return self.output

    @property
    def partitions(self) -> int:
        """One, which stops as soon as it has enough rows, with a limit."""
        most = 1 if self.limit is not None else os.cpu_count() or 1
        return max(1, min(most, len(self.batches)))

    @property
    def statistics(self) -> Statistics:
        """The rows before filters; exact without filters and limit."""
        exact = not self.filters and self.limit is None
        return Statistics(sum(batch.num_rows for batch in self.batches), exact)

    def label(self) -> str:
        columns = ", ".join(self.output.names)
        return (
            f"LiveRowsExec: rows={self.kept}, columns=[{columns}], regions={self.regions}, "
            f"filter=[{conditions(self.filters)}]"
        )

    def hand_over(self, partition: int) -> memwal_native.ResidentStream | Iterator[pa.RecordBatch]:
        """The rows, if the native library applies all filters."""
        native = [each.native for each in self.filters if each.native is not None]
        if len(native) < len(self.filters) or not (self.output.names or native):
            return self.execute(partition)
        unseen = memwal_native.StreamCounts()
        counts = self.metrics.native_stream()
        rows = memwal_native.ResidentStream(len(self.output.names), self.limit, unseen, counts)
        for batch in self._share(partition):
            rows.add(batch, native, _ALL, unseen)
        return rows

    def _share(self, partition: int) -> Sequence[pa.RecordBatch]:
        return self.batches[partition :: self.partitions]

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        remaining = self.limit
        for batch in self._share(partition):
            rows = meeting(self.filters, batch, self.output.names)
            if remaining is not None:
                rows = rows.slice(0, remaining)
                remaining -= rows.num_rows
            if rows.num_rows:
                yield rows
            if remaining == 0:
                return
