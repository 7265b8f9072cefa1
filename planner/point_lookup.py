"""The plan of a lookup by primary key (Specification 2, "Point Lookups")."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from exec_nodes.base.columns import Filter
from exec_nodes.bloom_filter_guard_exec import BloomFilterGuardExec
from exec_nodes.coalesce_first_exec import CoalesceFirstExec
from exec_nodes.filter_exec import FilterExec
from exec_nodes.keys.keys import KeyBatch
from exec_nodes.keys.sql import literals
from exec_nodes.node import Node
from exec_nodes.sources.source import Source
from exec_nodes.take_last_exec import TakeLastExec
from exec_nodes.union_exec import UnionExec
from planner.model import Query, RegionSources, Snapshot

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


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
    found = [_one_key(KeyBatch(keys.slice(i, 1)), snapshot, fetched) for i in range(len(keys))]
    node = found[0] if len(found) == 1 else UnionExec(tuple(found), 1)
    return FilterExec(node, tuple(residual), output) if residual else node


def _one_key(key: KeyBatch, snapshot: Snapshot, output: pa.Schema) -> Node:
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
