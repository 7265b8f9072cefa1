"""Plans over snapshots whose files still exist."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

import memwal_native
from exec_nodes.live.live_rows_exec import LiveRowsExec
from exec_nodes.node import Node, Statistics
from memwal_sql.errors import MemWalError, RetryError, SourceGoneError
from planner.model import Query, Snapshot
from planner.plan import plan


def scan(query: Query, snapshot: Snapshot) -> Node:
    """The plan of a scan. Raises RetryError if the snapshot lacks a column: it was dropped or
    renamed since the query was made."""
    gone = [name for name in query.columns if snapshot.info.schema.get_field_index(name) < 0]
    if gone:
        raise RetryError(
            f"the columns {gone} are gone since the query was made: the table has "
            f"{snapshot.info.schema.names} now; ask again for these"
        )
    return plan(query, snapshot)


@dataclass(frozen=True)
class Watched(Node):
    """A plan that runs after the table's loop of reads, by DataFusion. If files are gone it reads
    the table again: RepairError if they are lost, SourceGoneError if a new query works.

    It looks like the plan itself.
    """

    plan: Node
    missing: Callable[[SourceGoneError], MemWalError]

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", self.plan.metrics)

    @property
    def schema(self) -> pa.Schema:
        return self.plan.schema

    @property
    def children(self) -> tuple[Node, ...]:
        return self.plan.children

    @property
    def partitions(self) -> int:
        return self.plan.partitions

    @property
    def statistics(self) -> Statistics:
        return self.plan.statistics

    def label(self) -> str:
        return self.plan.label()

    def execute(self, partition: int = 0) -> Iterator[pa.RecordBatch]:
        """As the plan does."""
        return self._run(partition)

    def hand_over(self, partition: int) -> memwal_native.ResidentStream | Iterator[pa.RecordBatch]:
        """As the plan does."""
        with self._files():
            rows = self.plan.hand_over(partition)
        return rows if isinstance(rows, memwal_native.ResidentStream) else self._run(partition)

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        with self._files():
            yield from self.plan.execute(partition)

    @contextmanager
    def _files(self) -> Iterator[None]:
        try:
            yield
        except SourceGoneError as error:
            outcome = self.missing(error)
            if outcome is error:
                raise
            raise outcome from error


def watched(node: Node, snapshot: Snapshot) -> Node:
    """The plan of a query over a snapshot, to run later. Live rows read no files."""
    if snapshot.missing is None or isinstance(node, LiveRowsExec):
        return node
    return Watched(node, snapshot.missing)


def batches(node: Node) -> Iterator[pa.RecordBatch]:
    """The rows of a plan, partition by partition."""
    for part in range(node.partitions):
        rows = node.hand_over(part)
        if isinstance(rows, memwal_native.ResidentStream):
            yield from map(pa.record_batch, rows.batches(node.schema))
        else:
            yield from rows


def stream(node: Node, limit: int | None = None) -> pa.RecordBatchReader:
    """The rows of a plan, partition by partition, and no more than `limit`.

    Nodes take a limit as a hint to stop early: each partition on its own, and lookups ignore it.
    """
    rows = batches(node) if limit is None else _first(batches(node), limit)
    return pa.RecordBatchReader.from_batches(node.schema, rows)


def _first(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    if limit == 0:
        return
    for batch in batches:
        yield batch.slice(0, limit)
        limit -= batch.num_rows
        if limit <= 0:
            return
