"""Plans over snapshots whose files are still there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import pyarrow as pa

from exec_nodes.node import Node
from memwal_sql.errors import RetryError, SourceGoneError
from planner.model import Query, Snapshot
from planner.plan import plan

_ATTEMPTS = 8
T = TypeVar("T")


def plan_over(take: Callable[[], Snapshot], query: Query) -> Node:
    """The plan of `query` over the snapshot that `take` gives, as `opened_plan`.

    Raises RetryError when the snapshot lacks a column: somebody has dropped or renamed it since the
    query was made.
    """
    return opened_plan(lambda: _plan(query, take()))


def _plan(query: Query, snapshot: Snapshot) -> Node:
    gone = [name for name in query.columns if snapshot.info.schema.get_field_index(name) < 0]
    if gone:
        raise RetryError(
            f"the columns {gone} are gone since the query was made: the table has "
            f"{snapshot.info.schema.names} now; ask again for these"
        )
    return plan(query, snapshot)


def opened_plan(make: Callable[[], Node]) -> Node:
    """A plan that `make` makes over a snapshot of its own, with every source open."""
    return while_present(lambda: _opened(make()))


def while_present(call: Callable[[], T]) -> T:
    """What `call` returns, which takes a snapshot.

    A generation that was merged and collected since the snapshot was taken means again, never
    skip (protocol rule 14). Raises SourceGoneError when that keeps happening.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return call()
        except SourceGoneError:
            continue
    return call()


def _opened(node: Node) -> Node:
    _ = node.statistics  # opens every source
    return node


def stream(node: Node, limit: int | None = None) -> pa.RecordBatchReader:
    """The rows of a plan, partition by partition, and no more than `limit`.

    Nodes take a limit as a hint to stop early: each partition for itself, and lookups not at all.
    """
    batches = (batch for part in range(node.partitions) for batch in node.execute(part))
    rows = batches if limit is None else _first(batches, limit)
    return pa.RecordBatchReader.from_batches(node.schema, rows)


def _first(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    if limit == 0:
        return
    for batch in batches:
        yield batch.slice(0, limit)
        limit -= batch.num_rows
        if limit <= 0:
            return
