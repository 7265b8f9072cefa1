"""Region pruning: which regions may hold a row that the filters keep.

Specification 1, "Region Pruning". Everything here errs on one side: a region is dropped only if no
row with its values can satisfy the filters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol, TypeVar

import pyarrow as pa

from exec_nodes.base.errors import InvalidCallError
from planner.predicates.expr import And, Predicate
from planner.predicates.tuple_domain import TupleDomain, key_equalities, tuple_domains
from planner.regions.field_tests import field_test
from planner.regions.spec import RegionSpec
from planner.regions.values import RegionValue

RegionTest = Callable[[Mapping[str, object]], bool]

# With more values than this, testing every region costs no more.
_MOST_VALUES = 64


class Prunable(Protocol):
    """The parts of a region that pruning reads."""

    @property
    def spec_id(self) -> int:
        """The region spec it belongs to."""

    @property
    def values(self) -> Mapping[str, object] | None:
        """Its region values by field id; None when they are not known."""


RegionT = TypeVar("RegionT", bound=Prunable)


def prune(
    filters: Sequence[Predicate],
    regions: Sequence[RegionT],
    specs: Sequence[RegionSpec],
    schema: pa.Schema,
) -> tuple[RegionT, ...]:
    """The regions that may hold a row for which all `filters` are true, in order.

    Regions without values, or of a spec that is not among `specs`, always stay.
    """
    if not filters or not regions:
        return tuple(regions)
    by_id = {spec.spec_id: spec for spec in specs if not spec.is_manual}
    tests: dict[int, RegionTest | None] = {}
    kept = []
    for region in regions:
        spec = by_id.get(region.spec_id)
        if region.values is None or spec is None:
            kept.append(region)
            continue
        if region.spec_id not in tests:
            tests[region.spec_id] = region_test(tuple(filters), spec, _sources(spec, schema))
        test = tests[region.spec_id]
        if test is None or test(region.values):
            kept.append(region)
    return tuple(kept)


def _sources(spec: RegionSpec, schema: pa.Schema) -> pa.Schema:
    """The columns that the spec reads: a table has many more, which take a while to tell apart."""
    places = [schema.get_field_index(name) for name in spec.source_columns]
    return pa.schema([schema.field(place) for place in places if place >= 0])


@lru_cache(maxsize=1024)
def region_test(
    filters: tuple[Predicate, ...], spec: RegionSpec, schema: pa.Schema
) -> RegionTest | None:
    """A function from region values to whether the region may match; None if all may.

    What the filters allow is worked out once, so that a region costs a set lookup or so.
    """
    # A column that no field is made from says nothing about where its rows are.
    disjuncts = tuple_domains(And(filters), schema, spec.source_columns)
    if not disjuncts:
        return lambda _: False
    alternatives = [_domain_test(domains, spec, schema) for domains in disjuncts]
    if any(test is None for test in alternatives):
        return None
    tests = [test for test in alternatives if test is not None]
    if len(tests) == 1:
        return tests[0]
    return lambda values: any(test(values) for test in tests)


def _domain_test(domains: TupleDomain, spec: RegionSpec, schema: pa.Schema) -> RegionTest | None:
    tests = []
    for field in spec.fields:
        try:
            test = field_test(field, domains, schema)
        except InvalidCallError:
            # A field that can't be evaluated says nothing about its regions.
            continue
        if test is not None:
            tests.append((field.field_id, test))
    if not tests:
        return None

    def may_match(values: Mapping[str, object]) -> bool:
        return all(name not in values or test(values[name]) for name, test in tests)

    return may_match


@lru_cache(maxsize=1024)
def pinned_values(
    filters: tuple[Predicate, ...], spec: RegionSpec, schema: pa.Schema
) -> frozenset[tuple[RegionValue, ...]] | None:
    """The values, in the order of the spec's fields, of all regions that rows kept by `filters`
    can be in; None when the filters don't pin every column that the spec reads. Pure."""
    names = spec.source_columns
    if not names or any(schema.get_field_index(name) < 0 for name in names):
        return None
    keys = key_equalities(filters, names, schema)
    if keys is None or len(keys) > _MOST_VALUES:
        return None
    fields = [schema.field(name) for name in names]
    columns = zip(*keys, strict=True)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, fields, strict=True)]
    try:
        distinct, _ = spec.assign(pa.Table.from_arrays(arrays, schema=pa.schema(fields)))
    except InvalidCallError:
        return None  # a field that can't be evaluated says nothing about its regions
    return frozenset(tuple(row.values()) for row in spec.values_of(distinct))
