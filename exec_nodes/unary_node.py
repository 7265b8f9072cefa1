"""A node over one other."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from exec_nodes.node import Node, Statistics


@dataclass(frozen=True)
class UnaryNode(Node):
    """Reads `child`: its columns, as many rows, partition by partition, where a node does not say
    otherwise. One that reads all of the child at once must say so in `partitions`.
    """

    child: Node

    @property
    def schema(self) -> pa.Schema:
        return self.child.schema

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.child,)

    @property
    def partitions(self) -> int:
        return self.child.partitions

    @property
    def statistics(self) -> Statistics:
        return self.child.statistics
