"""Plans over snapshots whose files are still there."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from exec_nodes.node import Node
from memwal_sql.errors import SourceGoneError
from planner.model import Query, Snapshot
from planner.plan import plan

_ATTEMPTS = 8


def plan_over(take: Callable[[], Snapshot], query: Query) -> Node:
    """The plan of `query` over the snapshot that `take` gives.

    A generation that was merged and collected since the snapshot was taken means again, never
    skip (protocol rule 14). Raises SourceGoneError when that keeps happening.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return _opened(plan(query, take()))
        except SourceGoneError:
            continue
    return _opened(plan(query, take()))


def _opened(node: Node) -> Node:
    _ = node.statistics  # opens every source
    return node


def stream(node: Node) -> pa.RecordBatchReader:
    """All rows of a plan, partition by partition."""
    batches = (batch for part in range(node.partitions) for batch in node.execute(part))
    return pa.RecordBatchReader.from_batches(node.schema, batches)
