"""ProjectionExec: some of the columns, in another order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from exec_nodes.node import Statistics
from exec_nodes.unary_node import UnaryNode


@dataclass(frozen=True)
class ProjectionExec(UnaryNode):
    """Yields the child's columns that are named, in that order; none keep the number of rows."""

    columns: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        schema = self.child.schema
        return pa.schema([schema.field(name) for name in self.columns])

    @property
    def statistics(self) -> Statistics:
        rows = self.child.statistics
        return Statistics(rows.num_rows, rows.exact)

    def label(self) -> str:
        return f"ProjectionExec: columns=[{', '.join(self.columns)}]"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        for batch in self.child.execute(partition):
            yield batch.select(list(self.columns))
