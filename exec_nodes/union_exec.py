"""UnionExec: the rows of all children, packed into a few partitions."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from exec_nodes.base.errors import InvalidCallError
from exec_nodes.base.lazy import lazy_property
from exec_nodes.node import Node, ResidentPart, Statistics

# A child, and a partition of it.
_Pair = tuple[int, int]

# A partition in memory has at most so many times the rows of the largest part.
_SLACK = 1.25


@dataclass(frozen=True)
class UnionExec(Node):
    """Yields every child's rows, in no particular order.

    The children's partitions are dealt out to at most `target` partitions with about equally many
    rows, so that sixty small generations cost no sixty partitions. If all rows are in memory, there
    is nothing to wait for: few partitions that end about as soon as the largest part are enough,
    and the host divides its own work on the rows as its session says.
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
        pairs = self._dealt[partition]
        rows = self._resident
        if rows is None and self.partitions > 1:
            rows = self._in_memory(pairs)
        return None if rows is None else [part for pair in pairs for part in rows[pair]]

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        for child, part in self._dealt[partition]:
            yield from self.inputs[child].execute(part)

    @lazy_property
    def _dealt(self) -> list[list[_Pair]]:
        """The pairs that each partition reads, in the children's order."""
        parts = [child.partitions for child in self.inputs]
        if self.target == 1:
            return [[(index, part) for index, own in enumerate(parts) for part in range(own)]]
        rows = Counter[_Pair]()
        for index, (child, own) in enumerate(zip(self.inputs, parts, strict=True)):
            each = (child.statistics.num_rows or 0) // own
            rows.update({(index, part): each for part in range(own)})
        count = most = min(self.target, len(rows))
        longest = _SLACK * max(rows.values(), default=0)
        if self._resident is not None:
            count = min(most, math.ceil(rows.total() / max(longest, 1))) or 1
        dealt, load = _deal(rows, count)
        while load > longest and count < most:
            count += 1
            dealt, load = _deal(rows, count)
        return dealt

    @lazy_property
    def _resident(self) -> dict[_Pair, list[ResidentPart]] | None:
        parts = [range(child.partitions) for child in self.inputs]
        return self._in_memory((index, part) for index, own in enumerate(parts) for part in own)

    def _in_memory(self, pairs: Iterable[_Pair]) -> dict[_Pair, list[ResidentPart]] | None:
        """The rows of these partitions of children, if all are in memory."""
        resident: dict[_Pair, list[ResidentPart]] = {}
        for child, part in pairs:
            rows = self.inputs[child].resident(part)
            if rows is None:
                return None
            resident[child, part] = rows
        return resident


def _deal(rows: Counter[_Pair], count: int) -> tuple[list[list[_Pair]], int]:
    """Pairs with so many rows in `count` partitions, in order, and the rows of the largest."""
    dealt: list[list[_Pair]] = [[] for _ in range(count)]
    loads = [0] * count
    for pair, load in rows.most_common():
        # Equal loads are told apart by their number of pieces: row counts may be unknown.
        least = min(zip(loads, map(len, dealt), range(count), strict=True))[2]
        loads[least] += load
        dealt[least].append(pair)
    return [sorted(pairs) for pairs in dealt if pairs], max(loads, default=0)


def total(parts: Sequence[Statistics]) -> Statistics:
    """The statistics of the union of outputs."""
    rows = [part.num_rows for part in parts if part.num_rows is not None]
    if len(rows) < len(parts):
        return Statistics()
    return Statistics(sum(rows), all(part.exact for part in parts))
