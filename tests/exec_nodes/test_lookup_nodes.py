"""TakeLastExec, BloomFilterGuardExec, CoalesceFirstExec, FilterStaleExec and UnionExec."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from exec_nodes.base.errors import InvalidCallError
from exec_nodes.base.tasks import background_by
from exec_nodes.bloom_filter_guard_exec import BloomFilterGuardExec
from exec_nodes.coalesce_first_exec import CoalesceFirstExec
from exec_nodes.filter_stale_exec import FilterStaleExec
from exec_nodes.keys.keys import KeyBatch
from exec_nodes.liveness.masks import Masks, Matched
from exec_nodes.liveness.stale_sets import PlanStale, StaleSets
from exec_nodes.node import Node
from exec_nodes.scan_exec import ScanExec
from exec_nodes.sources.memtable_source import MemTableSource
from exec_nodes.sources.source import Source
from exec_nodes.take_last_exec import TakeLastExec
from exec_nodes.union_exec import UnionExec
from tests.exec_nodes.tables import (
    DELETED,
    SCHEMA,
    STORED,
    Rows,
    Write,
    collect,
    lance_generation,
    memory_base,
    memtable,
    pairs,
    stored,
)

KEY = KeyBatch(pa.table({"id": [1]}))


def found(*rows: Write) -> Rows:
    return Rows(tuple(stored(rows).to_batches()), STORED)


FORBIDDEN = Rows((), STORED, forbidden=True)


def test_the_first_input_with_a_row_decides_and_the_rest_never_run() -> None:
    node = CoalesceFirstExec((found(), found((1, 5)), FORBIDDEN, FORBIDDEN))
    assert pairs(node) == [(1, 5)]
    assert node.metrics["sources_skipped"] == 2
    assert node.schema.names == SCHEMA.names


def test_a_tombstone_is_an_answer() -> None:
    """lance-format/lance #6653."""
    node = CoalesceFirstExec((found((1, DELETED)), FORBIDDEN))
    assert pairs(node) == []
    with pytest.raises(InvalidCallError):
        CoalesceFirstExec(())


class Liar(MemTableSource):
    """A source whose filter always says maybe."""

    def might_contain(self, keys: KeyBatch) -> npt.NDArray[np.bool_]:
        return np.ones(len(keys), np.bool_)


def liar(source: MemTableSource) -> MemTableSource:
    source.__class__ = Liar
    return source


def test_a_guard_keeps_the_lookup_away_from_sources_without_the_key() -> None:
    guard = BloomFilterGuardExec(FORBIDDEN, memtable([(2, 2)], 1), KEY)
    assert pairs(guard) == []
    assert (guard.metrics["bloom_skips"], guard.metrics["bloom_hits"]) == (1, 0)
    with pytest.raises(AssertionError):
        collect(BloomFilterGuardExec(FORBIDDEN, memtable([(1, 1)], 1), KEY))


def test_a_false_hit_of_a_guard_changes_no_answer() -> None:
    """lance-format/lance #6856."""
    source, base = liar(memtable([(2, 2)], 1)), memory_base([(1, 7)])
    guard = BloomFilterGuardExec(TakeLastExec(source, KEY, "id = 1", SCHEMA), source, KEY)
    node = CoalesceFirstExec((guard, TakeLastExec(base, KEY, "id = 1", SCHEMA)))
    assert pairs(node) == [(1, 7)]
    assert guard.metrics["bloom_hits"] == 1


def test_take_last_returns_the_last_row_with_its_tombstone() -> None:
    node = TakeLastExec(memtable([(1, 1), (1, 2), (1, DELETED)], 3), KEY, "id = 1", SCHEMA)
    (row,) = collect(node).to_pylist()
    assert row == {"id": 1, "val": None, "s": None, "_tombstone": True}
    assert node.label() == "TakeLastExec: region_a[gen=3], filter=[id = 1]"


def candidates(
    base: Source | None, regions: tuple[tuple[Source, ...], ...]
) -> tuple[FilterStaleExec, Node]:
    """FilterStaleExec over every row of every source."""
    plan = PlanStale(base, regions, StaleSets())
    scans = tuple(ScanExec(s, i, SCHEMA, (), None, plan) for i, s in enumerate(plan.sources))
    union = UnionExec(scans, 2)
    return FilterStaleExec(union, Masks(plan), ("id",)), union


def test_filter_stale_drops_replaced_candidates_and_keeps_live_ones(tmp_path: Path) -> None:
    base = memory_base([(1, 10), (2, 20), (3, 30), (4, 40)])
    old = lance_generation(tmp_path, [(1, 11), (2, 21), (5, 50), (5, 51)], 1)
    new = memtable([(2, 22), (3, DELETED)], 2)
    node, union = candidates(base, ((new, old),))
    assert pairs(node) == [(1, 11), (2, 22), (4, 40), (5, 51)]
    # What the generation replaces is masked; the MemTable is asked about the other five rows.
    assert (node.metrics["bloom_hits"], node.metrics["bloom_skips"]) == (2, 3)
    assert node.metrics["stale_rows"] == 6
    assert len(collect(union)) == 10
    node.masks.exact(0)  # known now, and cached: later plans of these sources ask nobody
    later = FilterStaleExec(union, Masks(node.masks.stale), ("id",))
    assert pairs(later) == [(1, 11), (2, 22), (4, 40), (5, 51)]
    assert (later.metrics["bloom_hits"], later.metrics["bloom_skips"]) == (0, 0)


def test_bloom_filters_are_asked_where_matching_the_base_would_take_long(
    tmp_path: Path, within: Any
) -> None:
    later: list[Callable[[], object]] = []
    within(background_by(later.append))
    within(Matched.set(inline=3))
    base = memory_base([(1, 10), (2, 20), (3, 30), (4, 40)])
    generation = lance_generation(tmp_path, [(2, 21), (3, DELETED)], 1)
    node, union = candidates(base, ((generation,),))
    for hits in (2, 2, 0):
        if not hits:
            (match,) = later  # once, however many searches wait for it
            match()
        node = FilterStaleExec(union, Masks(node.masks.stale), ("id",))
        assert pairs(node) == [(1, 10), (2, 21), (4, 40)]
        assert (node.metrics["bloom_hits"], node.metrics["bloom_skips"]) == (hits, hits)
    within(Matched.set(most=3))
    node, _ = candidates(base, ((generation,),))
    assert pairs(node) == [(1, 10), (2, 21), (4, 40)]
    assert len(later) == 1


def test_union_packs_many_small_inputs_into_few_even_partitions() -> None:
    plan = PlanStale(None, (), StaleSets())
    sizes = [100, *[3] * 64]
    scans = tuple(
        ScanExec(memtable([(i, i) for i in range(n)], 1), 0, SCHEMA, (), None, plan) for n in sizes
    )
    union = UnionExec(scans, 2)
    assert union.partitions == 2
    rows = sorted(sum(b.num_rows for b in union.execute(p)) for p in range(2))
    assert sum(rows) == sum(sizes)
    assert rows == [145, 147]
    assert union.statistics.num_rows == sum(sizes)
    with pytest.raises(InvalidCallError):
        UnionExec((), 1)
