"""Region values that a query's filters pin, so that its regions are looked up and not tested."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from exec_nodes.base.errors import InvalidCallError
from planner.predicates.expr import Predicate
from planner.predicates.key_equalities import key_equalities
from planner.regions.spec import RegionSpec
from planner.regions.values import RegionValue

# With more values than this, testing every region costs no more.
_MOST_VALUES = 64


@lru_cache(maxsize=1024)
def pinned_values(
    filters: tuple[Predicate, ...], spec: RegionSpec, schema: pa.Schema
) -> frozenset[tuple[RegionValue, ...]] | None:
    """The values, in the order of the spec's fields, of all regions that rows kept by `filters`
    can be in; None when the filters don't pin every column that the spec reads. Pure."""
    names = spec.source_columns
    if not names or any(schema.get_field_index(name) < 0 for name in names):
        return None
    found = key_equalities(filters, names, schema)
    if found is None or len(found) > _MOST_VALUES:
        return None
    fields = [schema.field(name) for name in names]
    columns = zip(*found, strict=True)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, fields, strict=True)]
    try:
        distinct, _ = spec.assign(pa.Table.from_arrays(arrays, schema=pa.schema(fields)))
    except InvalidCallError:
        return None  # a field that can't be evaluated says nothing about its regions
    return frozenset(tuple(row.values()) for row in spec.values_of(distinct))
