"""The plan of a scan (Specification 2, "Scan Queries")."""

from __future__ import annotations

import os

import pyarrow as pa

from exec_nodes.deduplicate_exec import DeduplicateExec
from exec_nodes.liveness.stale_sets import STALE_SETS, PlanStale, StaleSets
from exec_nodes.node import Node
from exec_nodes.scan_exec import ScanExec
from exec_nodes.union_exec import UnionExec
from planner.model import Query, Snapshot


def plan_scan(query: Query, snapshot: Snapshot, stale_sets: StaleSets = STALE_SETS) -> Node:
    """DeduplicateExec over a UnionExec of one ScanExec a source: the base table first, then each
    region's sources, newest first.

    With a limit there is one partition, which stops as soon as it has enough rows.
    """
    schema = snapshot.info.schema
    output = pa.schema([schema.field(name) for name in query.columns])
    regions = tuple([region.sources for region in snapshot.regions])
    inputs = [name for condition in query.filters for name in condition.columns]
    columns = tuple(dict.fromkeys([*query.columns, *inputs]))
    whole = not query.filters and query.limit is None
    stale = PlanStale(snapshot.base, regions, stale_sets, columns, snapshot.masks, whole)
    scans = tuple(
        [
            ScanExec(source, ordinal, output, query.filters, query.limit, stale)
            for ordinal, source in enumerate(stale.sources)
        ]
    )
    target = 1 if query.limit is not None else os.cpu_count() or 1
    union = UnionExec(scans, target)
    return DeduplicateExec(union, stale, snapshot.info.primary_key, query.limit)
