"""Which keys a query asks for, if its filters pin the whole primary key."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pyarrow as pa

from planner.predicates.expr import And, Predicate
from planner.predicates.literals import python_values
from planner.predicates.tuple_domain import TupleDomain, tuple_domains

_MAX_KEYS = 1_000_000


def key_equalities(
    filters: Sequence[Predicate], primary_key: Sequence[str], schema: pa.Schema
) -> list[tuple[object, ...]] | None:
    """Every key that a row kept by all `filters` can have, each once, as tuples in key order.

    None when the filters don't pin the key to some values. The filters may keep fewer rows than
    these keys have: apply them to the rows found. A value is what `pa.array(values, type)` takes
    for exactly this value of the column: int, str, bytes, bool, Decimal; temporal values are
    integers in the unit of the column.
    """
    if not filters:
        return None
    found = tuple_domains(And(tuple(filters)), schema, primary_key)
    keys: dict[tuple[object, ...], None] = {}
    for domains in found:
        values = [_values(domains, name, schema) for name in primary_key]
        columns = [v for v in values if v is not None]
        if len(columns) < len(values) or math.prod(map(len, columns)) > _MAX_KEYS:
            return None
        keys.update(dict.fromkeys(itertools.product(*columns)))
    return list(keys) or None


def _values(domains: TupleDomain, column: str, schema: pa.Schema) -> list[object] | None:
    domain = domains.get(column)
    if domain is None or not domain.is_finite:
        return None
    kind = schema.field(column).type
    points = sorted(domain.points)
    if pa.types.is_fixed_size_binary(kind):
        points = [point for point in points if len(point) == kind.byte_width]
    return python_values(points, kind)
