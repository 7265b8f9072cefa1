"""The plan of a query: a lookup or a scan (Specification 2, "Point Lookups", "Scan Queries")."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from exec_nodes.base.columns import Filter
from exec_nodes.bloom_filter_guard_exec import BloomFilterGuardExec
from exec_nodes.coalesce_first_exec import CoalesceFirstExec
from exec_nodes.deduplicate_exec import DeduplicateExec
from exec_nodes.filter_exec import FilterExec
from exec_nodes.keys.keys import KeyBatch, key_column, one_array
from exec_nodes.keys.sql import literals
from exec_nodes.live.checked_live_exec import CheckedLiveExec
from exec_nodes.live.live_rows_exec import LiveRowsExec
from exec_nodes.liveness.stale_sets import STALE_SETS, PlanStale, StaleSets
from exec_nodes.node import Node
from exec_nodes.scan_exec import ScanExec
from exec_nodes.sources.source import Source
from exec_nodes.take_last_exec import TakeLastExec
from exec_nodes.union_exec import UnionExec
from planner.model import LiveTable, Query, RegionSources, Snapshot
from planner.predicates.tuple_domain import key_equalities, key_span

# Beyond this many keys one scan with the condition pushed into every source is the better plan.
MAX_LOOKUP_KEYS = 8

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


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
    if snapshot.live is not None and (live := plan_live(query, snapshot, snapshot.live, keys)):
        if not snapshot.live.is_checked:
            return live
        general = _plan(replace(query, limit=None), replace(snapshot, live=None))
        return CheckedLiveExec(live, general, query.limit)
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
    equalities = key_equalities([f.predicate for f in query.filters], names, schema)
    if not equalities or len(equalities) > MAX_LOOKUP_KEYS:
        return None
    fields = [schema.field(name) for name in names]
    columns = zip(*equalities, strict=True)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


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
    primary_key = snapshot.info.primary_key
    on_key = [f.predicate for f in query.filters if primary_key[0] in f.columns]
    span = key_span(on_key, primary_key, schema)
    scans = tuple(
        [
            ScanExec(source, ordinal, output, query.filters, query.limit, stale, span)
            for ordinal, source in enumerate(stale.sources)
        ]
    )
    target = 1 if query.limit is not None else os.cpu_count() or 1
    union = UnionExec(scans, target)
    return DeduplicateExec(union, stale, primary_key, query.limit)


def plan_live(
    query: Query, snapshot: Snapshot, live: LiveTable, keys: pa.Table | None
) -> Node | None:
    """LiveRowsExec over the rows in memory, or over those with a few `keys`; None if they lack a
    column or have gone on, or if they can't apply a filter."""
    conditions = [each.native for each in query.filters if each.native and each.rows is None]
    if snapshot.masks or len(conditions) < len(query.filters):
        return None
    encoded = None if keys is None else one_array(key_column(keys.columns))
    regions = len(snapshot.regions) + snapshot.regions_pruned
    schema = snapshot.info.schema
    rows = live.scan(schema, query, encoded, conditions, regions)
    output = pa.schema([schema.field(name) for name in query.columns])
    return None if rows is None else LiveRowsExec(rows, output)


def plan_point_lookup(
    query: Query, snapshot: Snapshot, keys: pa.Table, residual: Sequence[Filter]
) -> Node:
    """One CoalesceFirstExec a key: guarded lookups in each region's sources, newest first, then
    in the base table.

    `keys` are distinct and at least one. A key is looked up in the regions that its spec gives for
    it, and in those without values (protocol rules 1 and 10). `residual` are the filters that the
    keys alone don't decide: they are applied to the newest version.
    """
    schema = snapshot.info.schema
    output = pa.schema([schema.field(name) for name in query.columns])
    inputs = [name for condition in residual for name in condition.columns]
    fetched = pa.schema([schema.field(n) for n in dict.fromkeys([*query.columns, *inputs])])
    lookups = [_lookup(KeyBatch(keys.slice(i, 1)), snapshot, fetched) for i in range(len(keys))]
    node = lookups[0] if len(lookups) == 1 else UnionExec(tuple(lookups), 1)
    return FilterExec(node, tuple(residual), output) if residual else node


def _lookup(key: KeyBatch, snapshot: Snapshot, output: pa.Schema) -> Node:
    condition = _condition(key)

    def lookup(source: Source) -> Node:
        return TakeLastExec(source, key, condition, output)

    inputs: list[Node] = [
        BloomFilterGuardExec(lookup(source), source, key)
        for region in _regions_of(key, snapshot)
        for source in region.sources
    ]
    if snapshot.base is not None:
        inputs.append(lookup(snapshot.base))
    return CoalesceFirstExec(tuple(inputs))


def _regions_of(key: KeyBatch, snapshot: Snapshot) -> list[RegionSources]:
    """The regions that may hold the key: its own, and those whose values are not known."""
    info = snapshot.info
    own = {
        spec.spec_id: spec.key_function(info.schema, info.primary_key)(key.values[0])
        for spec in info.region_specs
    }
    return [
        region
        for region in snapshot.regions
        if region.values is None
        or region.spec_id not in own
        or tuple(region.values.values()) == own[region.spec_id]
    ]


def _condition(key: KeyBatch) -> str:
    parts = []
    for name, column in zip(key.names, key.table.columns, strict=True):
        values = literals(column)
        parts.append(f"{_shown(name)} = {column[0] if values is None else values[0]}")
    return " AND ".join(parts)


def _shown(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'
