"""The first scan of a whole base table finds its stale rows on the way; later ones know them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exec_nodes.liveness.stale_sets import PlanStale, StaleSets
from exec_nodes.node import Node
from exec_nodes.resident.store import ResidentStore
from exec_nodes.sources.source import Source
from planner.model import Query
from planner.plan import plan_scan
from tests.exec_nodes.tables import (
    DELETED,
    collect,
    lance_base,
    memory_base,
    memtable,
    newest,
    pairs,
    snapshot,
    where,
)

BOTH = ("id", "val")


def learns(node: Node) -> bool:
    stale = node.stale  # type: ignore[attr-defined]
    assert isinstance(stale, PlanStale)
    return stale.learner is not None


@pytest.mark.parametrize("columns", [BOTH, ("val",), ()])
def test_a_scan_learns_once_and_the_next_knows(tmp_path: Path, columns: Sequence[str]) -> None:
    rows = [(i * 3, i) for i in range(3000)]
    base = lance_base(tmp_path, rows, max_rows_per_file=700)
    writes = [[(i, -i) for i in range(90)], [(6, DELETED), (1, 1)]]
    newer = [memtable(writes[1], 2), memtable(writes[0], 1)]
    sets, table = StaleSets(ResidentStore()), snapshot(base, newer)
    first = plan_scan(Query(tuple(columns)), table, sets)
    assert learns(first)
    found = collect(first)
    second = plan_scan(Query(tuple(columns)), table, sets)
    assert not learns(second)
    expected = newest(rows, writes)
    assert found.num_rows == collect(second).num_rows == len(expected)
    if columns == BOTH:
        assert dict(pairs(first)) == dict(pairs(second)) == expected
    union = sets.of_base(base, newer)
    assert union.tolist() == StaleSets(ResidentStore()).of_base(base, newer).tolist()
    assert (
        sets.of_base(base, newer[:1]).tolist()
        == StaleSets(ResidentStore()).of_base(base, newer[:1]).tolist()
    )


def test_a_scan_that_was_given_up_has_learned_nothing(tmp_path: Path) -> None:
    base = lance_base(tmp_path, [(i, i) for i in range(3000)], max_rows_per_file=700)
    sets, newer = StaleSets(ResidentStore()), [memtable([(i, -i) for i in range(0, 3000, 7)], 1)]
    plan = plan_scan(Query(BOTH), snapshot(base, newer), sets)
    assert learns(plan)
    stream = plan.execute(0)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert sets.cached_base(base, newer) is None
    assert learns(plan_scan(Query(BOTH), snapshot(base, newer), sets))


@pytest.mark.parametrize("query", [Query(BOTH, (where("val", ">", 1),)), Query(BOTH, (), 2)])
def test_only_a_scan_of_all_rows_learns(query: Query) -> None:
    table = snapshot(memory_base([(1, 10), (2, 20)]), [memtable([(1, 11)], 1)])
    assert not learns(plan_scan(query, table, StaleSets(ResidentStore())))


writes = st.lists(
    st.tuples(st.integers(0, 20), st.one_of(st.none(), st.integers(0, 9))), min_size=1, max_size=30
)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    base=st.dictionaries(st.integers(0, 25), st.integers(0, 9)),
    newer=st.lists(writes, min_size=1, max_size=12),
)
def test_learned_sets_equal_computed_ones(
    base: dict[int, int], newer: Sequence[list[tuple[int, int | None]]]
) -> None:
    """More sources than one byte tells apart, too."""
    rows = list(base.items())
    sources: list[Source] = [
        memtable(w, g) for g, w in sorted(enumerate(newer, 1), key=lambda pair: -pair[0])
    ]
    table = snapshot(memory_base(rows), sources)
    sets = StaleSets(ResidentStore())
    found = [pairs(plan_scan(Query(BOTH), table, sets)) for _ in range(2)]
    assert found[0] == found[1] == sorted(newest(rows, newer).items())
    assert table.base is not None
    for part in (sources, sources[1:], sources[:1]):
        assert (
            sets.of_base(table.base, part).tolist()
            == StaleSets(ResidentStore()).of_base(table.base, part).tolist()
        )


@pytest.mark.parametrize("how", ["twice", "cut"])
def test_a_partition_that_runs_again_is_learned_once(tmp_path: Path, how: str) -> None:
    rows = [(i, i) for i in range(3000)]
    base = lance_base(tmp_path, rows, max_rows_per_file=700)
    sets, newer = StaleSets(ResidentStore()), [memtable([(i, -i) for i in range(0, 3000, 2)], 1)]
    plan = plan_scan(Query(BOTH), snapshot(base, newer), sets)
    assert learns(plan) and plan.partitions > 1
    for _ in range(plan.partitions):
        stream = plan.execute(0)
        if how == "twice":
            collected = list(stream)
            assert sum(batch.num_rows for batch in collected) > 0
        else:
            next(stream)
            stream.close()  # type: ignore[attr-defined]
    assert sets.cached_base(base, newer) is None
    collect(plan)
    expected = StaleSets(ResidentStore()).of_base(base, newer).tolist()
    assert sets.of_base(base, newer).tolist() == expected
    again = plan_scan(Query(BOTH), snapshot(base, newer), sets)
    assert again.statistics.num_rows == collect(again).num_rows == 3000
