"""Regions that filters pin are the ones that pruning keeps."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

import memwal_sql as mw
from planner.regions.check import validate
from planner.regions.pruning import pinned_values, prune
from planner.regions.spec import RegionSpec
from planner.regions.text import spec_of
from tests.each import each
from tests.planner.predicates.said import Said

SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("day", pa.date32()), ("val", pa.int64())]
)
KEY = ("id", "name", "day")
SPECS = {
    "identity": [mw.identity("id")],
    "two": [mw.identity("name"), mw.bucket("id", 8)],
    "truncate": [mw.truncate("name", 1)],
    "day": [mw.day("day")],
    "expression": [mw.expression("col0 % 7", "id")],
}
SAID = Said(SCHEMA)
FILTERS = {
    "one": "id = 5 AND name = 'ab' AND day = DATE '2026-03-04'",
    "some": "id IN (5, 6, 70) AND (name = 'ab' OR name = 'x') AND day = DATE '2026-03-04'",
    "and more": "id = 5 AND val > 3 AND name = 'ab' AND day = DATE '2026-03-04'",
    "absent": "id = -1 AND name = '' AND day = DATE '1999-12-31'",
}


def _regions(spec: RegionSpec) -> list[Any]:
    """One region for each combination of region values of many rows."""
    rows = [
        {"id": n, "name": name, "day": day, "val": 0}
        for n, name, day in itertools.product(
            [None, *range(12), 70], [None, "", "ab", "x"], [None, 0, 20516, 20550]
        )
    ]
    distinct, _ = spec.assign(pa.Table.from_pylist(rows, SCHEMA))
    return [SimpleNamespace(spec_id=spec.spec_id, values=row) for row in spec.values_of(distinct)]


@each("filters", FILTERS)
@each("name", SPECS)
def test_pinned_regions_are_those_that_pruning_keeps(name: str, filters: str) -> None:
    spec = validate(spec_of(SPECS[name], 1), SCHEMA, KEY)
    said = SAID(FILTERS[filters])
    pinned = pinned_values(said, spec, SCHEMA)
    assert pinned is not None
    regions = _regions(spec)
    kept = {tuple(r.values.values()) for r in prune(said, regions, [spec], SCHEMA)}
    assert kept <= pinned
    assert {tuple(r.values.values()) for r in regions} & pinned >= kept


@each("condition", ["id > 5", "val = 3", "id = 5", "id = 5 OR name = 'x'", "lower(name) = 'x'"])
def test_filters_that_leave_a_source_column_open_pin_nothing(condition: str) -> None:
    spec = validate(spec_of(SPECS["two"], 1), SCHEMA, KEY)
    assert pinned_values(SAID(condition), spec, SCHEMA) is None
