"""UnionExec: the rows of all children, packed into a few partitions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import pyarrow as pa

from exec_nodes.base.errors import InvalidCallError
from exec_nodes.base.lazy import lazy_property
from exec_nodes.node import Node, ResidentPart, Statistics


@dataclass(frozen=True)
class UnionExec(Node):
    """Yields every child's rows, in no particular order.

    The children's partitions are dealt out to at most `target` partitions with about equally many
    rows, so that sixty small generations cost no sixty partitions.
    """

    inputs: tuple[Node, ...]
    target: int = field(default_factory=lambda: os.cpu_count() or 1)

    def __post_init__(self) -> None:
        if not self.inputs:
            raise InvalidCallError("a UnionExec needs at least one input")

    @property
    def schema(self) -> pa.Schema:
        return self.inputs[0].schema

    @property
    def children(self) -> tuple[Node, ...]:
        return self.inputs

    @property
    def partitions(self) -> int:
        """At most `target`."""
        return len(self._dealt)

    @property
    def statistics(self) -> Statistics:
        return total([child.statistics for child in self.inputs])

    def label(self) -> str:
        return "UnionExec"

    def resident(self, partition: int) -> list[ResidentPart] | None:
        parts: list[ResidentPart] = []
        for child, part in self._dealt[partition]:
            more = self.inputs[child].resident(part)
            if more is None:
                return None
            parts += more
        return parts

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        for child, part in self._dealt[partition]:
            yield from self.inputs[child].execute(part)

    @lazy_property
    def _dealt(self) -> list[list[tuple[int, int]]]:
        """The (child, child's partition) pairs that each partition reads, in the children's
        order."""
        parts = [child.partitions for child in self.inputs]
        if self.target == 1:
            return [[(index, part) for index, own in enumerate(parts) for part in range(own)]]
        pieces = []
        for index, (child, own) in enumerate(zip(self.inputs, parts, strict=True)):
            rows = (child.statistics.num_rows or 0) / own
            pieces += [(rows, index, part) for part in range(own)]
        count = max(1, min(self.target, len(pieces)))
        dealt: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        loads = [0.0] * count
        for rows, index, part in sorted(pieces, key=itemgetter(0), reverse=True):
            # Equal loads are told apart by their number of pieces: row counts may be unknown.
            least = min(zip(loads, map(len, dealt), range(count), strict=True))[2]
            loads[least] += rows
            dealt[least].append((index, part))
        return [sorted(pairs) for pairs in dealt if pairs]


def total(parts: Sequence[Statistics]) -> Statistics:
    """The statistics of the union of outputs."""
    rows = [part.num_rows for part in parts if part.num_rows is not None]
    if len(rows) < len(parts):
        return Statistics()
    return Statistics(sum(rows), all(part.exact for part in parts))
