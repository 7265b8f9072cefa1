"""ProjectionExec: some of the columns, in another order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from exec_nodes.node import Node, Statistics


@dataclass(frozen=True)
class ProjectionExec(Node):
    """Yields the child's columns that are named, in that order; none keep the number of rows."""

    child: Node
    columns: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns named."""
        schema = self.child.schema
        return pa.schema([schema.field(name) for name in self.columns])

    @property
    def children(self) -> tuple[Node, ...]:
        """The child."""
        return (self.child,)

    @property
    def partitions(self) -> int:
        """The child's."""
        return self.child.partitions

    @property
    def statistics(self) -> Statistics:
        """The child's rows."""
        rows = self.child.statistics
        return Statistics(rows.num_rows, rows.exact)

    def label(self) -> str:
        """`ProjectionExec: columns=[_distance, id]`."""
        return f"ProjectionExec: columns=[{', '.join(self.columns)}]"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        for batch in self.child.execute(partition):
            yield batch.select(list(self.columns))
