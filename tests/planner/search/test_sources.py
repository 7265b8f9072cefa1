"""Which sources a search looks into (specification 2, "Region Pruning")."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pyarrow as pa

from planner.model import RegionSources, Snapshot, TableInfo
from planner.predicates.condition import Condition
from planner.regions.check import validate
from planner.regions.factories import identity
from planner.regions.text import spec_of
from planner.search.sources import searched
from tests.each import each
from tests.planner.predicates.said import Said

SCHEMA = pa.schema([pa.field("kind", pa.string(), nullable=False)])
SAID = Said(SCHEMA)


def snapshot(*, base: bool) -> Snapshot:
    spec = validate(spec_of([identity("kind")], 1), SCHEMA, ["kind"])
    (field,) = spec.fields
    regions = [
        RegionSources(UUID(int=n), kind, 1, {field.field_id: kind}, _sources(count))
        for n, (kind, count) in enumerate((("a", 2), ("b", 1), ("c", 3)))
    ]
    info = TableInfo(SCHEMA, ("kind",), (spec,))
    return Snapshot(info, _sources(1)[0] if base else None, tuple(regions), 4)


def _sources(count: int) -> tuple[Any, ...]:
    return tuple(cast(Any, SimpleNamespace()) for _ in range(count))


def where(sql: str) -> Condition:
    (said,) = SAID(sql)
    return Condition(sql, lambda batch: pa.array([True] * batch.num_rows), ("kind",), None, said)


@each(
    "filters, base, ordinals, pruned",
    [
        ((), True, {0, 1, 2, 3, 4, 5, 6}, 4),
        (("kind = 'b'",), True, {0, 3}, 6),
        (("kind = 'b'",), False, {2}, 6),
        (("kind IN ('a', 'c')",), True, {0, 1, 2, 4, 5, 6}, 5),
        (("kind = 'z'",), True, {0}, 7),
        (("lower(kind) = 'a'", "kind = 'a'"), True, {0, 1, 2}, 6),
    ],
)
def test_regions_that_filters_rule_out_keep_their_ordinals(
    filters: tuple[str, ...], base: bool, ordinals: set[int], pruned: int
) -> None:
    assert searched(snapshot(base=base), [where(sql) for sql in filters]) == (ordinals, pruned)
