"""Chooses the plan of a query."""

from __future__ import annotations

import pyarrow as pa

from exec_nodes.node import Node
from planner.model import Query, Snapshot
from planner.point_lookup import plan_point_lookup
from planner.predicates.key_equalities import key_equalities
from planner.scan import plan_scan

# Beyond this many keys one scan with the condition pushed into every source is the better plan.
MAX_LOOKUP_KEYS = 8


def plan(query: Query, snapshot: Snapshot) -> Node:
    """A point lookup if the filters pin the primary key to a few values, else a scan. Pure.

    The root's metrics say how many regions the filters ruled out.
    """
    node = _plan(query, snapshot)
    node.metrics.add(regions_pruned=snapshot.regions_pruned)
    return node


def _plan(query: Query, snapshot: Snapshot) -> Node:
    has_sources = snapshot.base is not None or any(r.sources for r in snapshot.regions)
    keys = _keys(query, snapshot) if has_sources and not snapshot.masks else None
    if keys is None:
        return plan_scan(query, snapshot)
    primary_key = frozenset(snapshot.info.primary_key)
    decided = [f for f in query.filters if primary_key.issuperset(f.columns)]
    for condition in decided:
        batch = keys.select(list(condition.columns)).combine_chunks().to_batches()[0]
        keys = keys.filter(condition.evaluate(batch))
        if not len(keys):
            return plan_scan(query, snapshot)
    residual = [f for f in query.filters if f not in decided]
    return plan_point_lookup(query, snapshot, keys, residual)


def _keys(query: Query, snapshot: Snapshot) -> pa.Table | None:
    """The few keys that rows kept by the filters can have, or None."""
    schema, names = snapshot.info.schema, snapshot.info.primary_key
    found = key_equalities([f.predicate for f in query.filters], names, schema)
    if not found or len(found) > MAX_LOOKUP_KEYS:
        return None
    fields = [schema.field(name) for name in names]
    columns = zip(*found, strict=True)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))
