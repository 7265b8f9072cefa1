"""The execution node: a frozen description that streams record batches when executed.

A node knows Arrow and its sources, nothing of manifests or DataFusion (Specification 2, "Query
Execution" and Appendix 3). What `draw` prints is what runs: a parent reads its rows from
`child.execute(...)` and from nowhere else.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

import memwal_native
from exec_nodes.base.columns import RowAddresses
from exec_nodes.base.counting import running


@dataclass(frozen=True, slots=True)
class Statistics:
    """An estimate of a node's output before it runs. `exact` speaks of `num_rows`."""

    num_rows: int | None = None
    exact: bool = False
    total_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ResidentPart:
    """Rows in memory of a source of a plan.

    Attributes:
        ordinal: the source's.
        rows: the columns of the output, and then others that the conditions read.
        addresses: of all rows, ascending.
        conditions: those that rows must meet.
        counts: for the rows that meet them.
    """

    ordinal: int
    rows: pa.Table
    addresses: RowAddresses
    conditions: list[memwal_native.Predicate]
    counts: memwal_native.StreamCounts


class Metrics:
    """Counters of one node, added to by every thread that executes it.

    Common names: output_rows, output_batches, output_bytes (as DataFusion counts them: memory that
    batches share counts for each), elapsed_compute_ns (the node's own time, its children's
    excluded). A node adds names of its own, such as bloom_hits, and what Lance reads for it is
    counted as `counting.lance_reads` says.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, int] = {}
        self._streams: list[memwal_native.StreamCounts] = []

    def stream(self) -> memwal_native.StreamCounts:
        """Counters for one more stream, which alone changes them: no batch waits for a lock."""
        counts = memwal_native.StreamCounts()
        self._streams.append(counts)
        return counts

    def add(self, **counts: int) -> None:
        """Add to the counters named."""
        with self._lock:
            for name, count in counts.items():
                self._values[name] = self._values.get(name, 0) + count

    def values(self) -> dict[str, int]:
        """The counters by name, of streams that go on too."""
        with self._lock:
            values = dict(self._values)
        for stream in list(self._streams):
            for name, count in zip(_STREAMED, stream.values(), strict=True):
                if count or name != "stale_rows":
                    values[name] = values.get(name, 0) + count
        return values

    def __getitem__(self, name: str) -> int:
        return self.values().get(name, 0)


_STREAMED = ("output_rows", "output_batches", "output_bytes", "elapsed_compute_ns", "stale_rows")


class _NestedTime(threading.local):
    """Nanoseconds this thread has spent inside nodes below the one that is running."""

    ns = 0


_nested = _NestedTime()


@dataclass(frozen=True)
class Node(ABC):
    """One operator of a plan. Subclasses are frozen dataclasses, complete once built."""

    metrics: Metrics = field(default_factory=Metrics, init=False, repr=False, compare=False)

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of every batch that `execute` yields."""

    @property
    def children(self) -> tuple[Node, ...]:
        """The nodes this one reads, in the order in which they are drawn; a leaf has none."""
        return ()

    @property
    def partitions(self) -> int:
        """The number of partitions that can be executed independently, each exactly once."""
        return 1

    @property
    def statistics(self) -> Statistics:
        """The estimate of the output before execution."""
        return Statistics()

    @abstractmethod
    def label(self) -> str:
        """One deterministic line, `Name: key=value`."""

    @abstractmethod
    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one partition."""

    def resident(self, partition: int) -> list[ResidentPart] | None:
        """The rows of one partition, before conditions and liveness, if all are in memory."""
        return None

    def hand_over(self, partition: int) -> memwal_native.ResidentStream | Iterator[pa.RecordBatch]:
        """The rows of one partition for a reader that needs no interpreter for rows in memory:
        those, where a node has them, or else what `execute` yields. Aggregates, conditions and
        whole scans of 1,000,000 rows take 1.6 to 2.1 times as much CPU by `execute`."""
        return self.execute(partition)

    def execute(self, partition: int = 0) -> Iterator[pa.RecordBatch]:
        """Stream one partition, lazily, counting rows, batches, bytes and own time.

        Several partitions may run at once in different threads.
        """
        stream, counts = self._run(partition), self.metrics.stream()
        while True:
            outer, counted = _nested.ns, running.counters
            _nested.ns, running.counters = 0, self.metrics
            start = time.perf_counter_ns()
            try:
                batch = next(stream, None)
            finally:
                running.counters = counted
                spent = time.perf_counter_ns() - start
                own = spent - _nested.ns
                _nested.ns = outer + spent
            if batch is None:
                counts.add(0, 0, own)
                return
            counts.add(batch.num_rows, batch.get_total_buffer_size(), own)
            yield batch


def opened(node: Node) -> Node:
    """A plan with every source open."""
    _ = node.statistics
    return node


def draw(node: Node, depth: int = 0) -> str:
    """The tree as text: one label a line, children indented by two spaces."""
    lines = ["  " * depth + node.label()]
    lines += [draw(child, depth + 1) for child in node.children]
    return "\n".join(lines)
