"""Plans over snapshots whose files are still there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from exec_nodes.node import Node
from memwal_sql.errors import RetryError
from planner.model import Query, Snapshot
from planner.plan import plan

# A query over any snapshot: its plan, the sources of which need not be open yet.
Planner = Callable[[Snapshot], Node]


def scan(query: Query, snapshot: Snapshot) -> Node:
    """The plan of a scan. Raises RetryError when the snapshot lacks a column: somebody has dropped
    or renamed it since the query was made."""
    gone = [name for name in query.columns if snapshot.info.schema.get_field_index(name) < 0]
    if gone:
        raise RetryError(
            f"the columns {gone} are gone since the query was made: the table has "
            f"{snapshot.info.schema.names} now; ask again for these"
        )
    return plan(query, snapshot)


def opened(node: Node) -> Node:
    """A plan with every source open."""
    _ = node.statistics
    return node


def batches(node: Node) -> Iterator[pa.RecordBatch]:
    """The rows of a plan, partition by partition."""
    return (batch for part in range(node.partitions) for batch in node.execute(part))


def stream(node: Node, limit: int | None = None) -> pa.RecordBatchReader:
    """The rows of a plan, partition by partition, and no more than `limit`.

    Nodes take a limit as a hint to stop early: each partition for itself, and lookups not at all.
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
