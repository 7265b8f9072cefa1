"""FilterExec: conditions that may only be applied once the newest version is known, or the best
rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from exec_nodes.base.columns import Filter
from exec_nodes.explain.labels import conditions
from exec_nodes.node import Statistics
from exec_nodes.unary_node import UnaryNode


@dataclass(frozen=True)
class FilterExec(UnaryNode):
    """Keeps the rows that meet every filter, and of their columns those in `output`."""

    filters: tuple[Filter, ...]
    output: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        return self.output

    @property
    def statistics(self) -> Statistics:
        return Statistics(self.child.statistics.num_rows, False)

    def label(self) -> str:
        return f"FilterExec: filter=[{conditions(self.filters)}]"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        for batch in self.child.execute(partition):
            for condition in self.filters:
                batch = batch.filter(condition.met_in(batch))
            if batch.num_rows:
                yield batch.select(self.output.names)
