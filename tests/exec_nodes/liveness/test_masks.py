"""What a search masks in its sources, and what it has to ask newer ones (protocol rule 16)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from exec_nodes.base.columns import DISTANCE_ROWS
from exec_nodes.filter_stale_exec import FilterStaleExec
from exec_nodes.liveness.masks import Masks, Matched
from exec_nodes.liveness.stale_sets import PlanStale, StaleSets
from exec_nodes.sources.source import Source
from exec_nodes.union_exec import UnionExec
from tests.exec_nodes.tables import (
    DELETED,
    Rows,
    Write,
    collect,
    lance_generation,
    memory_base,
    memtable,
)

# Each region has keys of its own.
REGIONS = {"a": range(4), "b": range(10, 14)}
BASE: list[Write] = [(key, 0) for keys in REGIONS.values() for key in keys]
Layout = dict[str, list[list[Write]]]


def _generations(keys: Sequence[int]) -> st.SearchStrategy[list[list[Write]]]:
    writes = st.tuples(st.sampled_from(keys), st.sampled_from([1, DELETED]))
    return st.lists(st.lists(writes, min_size=1, max_size=4), max_size=5)


LAYOUTS = st.fixed_dictionaries({name: _generations(keys) for name, keys in REGIONS.items()})


def _live(layout: Layout) -> set[tuple[str, int, int]]:
    """The rows of the table: region ("" for the base), generation and address."""
    newest: dict[int, tuple[str, int, int] | None] = {
        key: ("", -1, address) for address, (key, _) in enumerate(BASE)
    }
    for region, generations in layout.items():
        for number, writes in enumerate(generations, 1):
            for address, (key, value) in enumerate(writes):
                newest[key] = None if value is DELETED else (region, number, address)
    return {place for place in newest.values() if place is not None}


def _all_rows(ordinal: int, source: Source) -> Rows:
    addresses = source.keys().addresses
    columns = [addresses, [ordinal] * len(addresses), [0.0] * len(addresses)]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, DISTANCE_ROWS, strict=True)]
    return Rows((pa.RecordBatch.from_arrays(arrays, schema=DISTANCE_ROWS),), DISTANCE_ROWS)


@pytest.mark.parametrize("most_matched", [Matched.inline, 0])
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(layout=LAYOUTS, flushed=st.integers(0, 5), known=st.sets(st.sampled_from([*REGIONS, ""])))
@example(layout={"a": [[(0, 1), (1, 1)], [(0, 2)]], "b": []}, flushed=0, known=set())
def test_the_live_rows_of_any_layout_are_left(
    tmp_path_factory: pytest.TempPathFactory,
    most_matched: int,
    layout: Layout,
    flushed: int,
    known: set[str],
) -> None:
    """However many generations of each region are flushed, whatever of the stale sets is `known`
    already, and also where a large base is not matched before the search."""
    folder = tmp_path_factory.mktemp("generations")
    regions = tuple(_sources(folder, name, writes, flushed) for name, writes in layout.items())
    base, sets = memory_base(BASE), StaleSets()
    newer = [source for region in regions for source in region]
    if "" in known:
        sets.of_base(base, newer)
    for name, region in zip(layout, regions, strict=True):
        if name in known and region:
            sets.of_region(region)
    stale = PlanStale(base, regions, sets)
    every = UnionExec(tuple(_all_rows(*one) for one in enumerate(stale.sources)), 1)
    with (
        Matched.set(inline=most_matched),
        patch.object(sets, "find_base"),
    ):
        found = collect(FilterStaleExec(every, Masks(stale), ("id",), None, 1))
    read = [stale.sources[ordinal] for ordinal in found["_source"].to_pylist()]
    places = zip(read, found["_rowaddr"].to_pylist(), strict=True)
    left = [(source.region, source.generation, address) for source, address in places]
    assert len(left) == len(set(left))
    assert set(left) == _live(layout)


def _sources(
    folder: Path, region: str, generations: list[list[Write]], flushed: int
) -> tuple[Source, ...]:
    """Newest first; the first `flushed` ones on disk, each key once, as flushes leave them."""
    found: list[Source] = []
    for number, writes in enumerate(generations, 1):
        if number <= flushed:
            found.append(lance_generation(folder, writes, number, region))
        else:
            found.append(memtable(writes, number, region))
    return tuple(reversed(found))


def test_nothing_is_asked_about_rows_whose_stale_sets_are_known() -> None:
    newer, older = memtable([(1, 10)], 2), memtable([(1, 1), (2, 2)], 1)
    sets = StaleSets()
    assert [one.tolist() for one in sets.of_region([newer, older])] == [[], [0]]
    found = Masks(PlanStale(None, ((newer, older),), sets))
    assert [found.unmasked(ordinal) for ordinal in range(2)] == [(), ()]
    assert np.array_equal(found.of(1), found.exact(1))
