"""Searches that returned stale rows, lost rows or returned too few, elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from exec_nodes.filter_stale_exec import FilterStaleExec
from exec_nodes.keys.bloom import BloomFilter
from exec_nodes.liveness.masks import Matched
from exec_nodes.vectors.index_search import IndexUse
from tests.exec_nodes.tables import nodes
from tests.model.resident import another_store
from tests.search.vector_tables import Vector, VectorTable, below, plan_of, run

Layer = Callable[[VectorTable], None]
QUERY = np.zeros(6)


def at(distance: float) -> npt.NDArray[Any]:
    """A vector at this (squared) distance from QUERY."""
    return np.array([distance**0.5, 0, 0, 0, 0, 0], np.float32)


def in_memory(table: VectorTable) -> None:
    """The newest rows stay in the MemTable."""


def flushed(table: VectorTable) -> None:
    table.flush()


LAYERS = pytest.mark.parametrize("layer", [in_memory, flushed])


def base_of(path: Path, count: int = 40, **options: Any) -> VectorTable:
    """Row i is at distance i."""
    rows: dict[int, tuple[int, Vector]] = {i: (i, at(i)) for i in range(count)}
    return VectorTable.over(path / "t", rows, **options)


def ids(table: VectorTable, k: int, **options: Any) -> list[int]:
    plan = plan_of(table.table.snapshot(), table.query(QUERY, k, **options))
    return [row["id"] for row in run(plan)]


@LAYERS
def test_a_row_that_moved_away_is_not_found_where_it_was(tmp_path: Path, layer: Layer) -> None:
    """#6888, #6899: the new version is no longer among the nearest of its source, so nothing
    above the sources could tell that the old one, which still is, is stale."""
    table = base_of(tmp_path)
    table.upsert({i: (i, at(1000 + i)) for i in range(5)})
    # Rows of the same source push the new versions out of its own nearest.
    table.upsert({100 + i: (0, at(500 + i)) for i in range(20)})
    layer(table)
    assert ids(table, 3) == [5, 6, 7]
    assert ids(table, 100)[-5:] == [0, 1, 2, 3, 4]
    table.upsert({0: (0, at(3000)), 6: (6, at(0.5))})
    layer(table)
    assert ids(table, 3) == [6, 5, 7]
    table.close()


@LAYERS
def test_a_deleted_row_is_not_found_and_comes_back_when_it_is_written_again(
    tmp_path: Path, layer: Layer
) -> None:
    """#6653, for searches."""
    table = base_of(tmp_path)
    table.delete([0, 2])
    layer(table)
    assert ids(table, 3) == [1, 3, 4]
    table.upsert({2: (2, at(0))})
    layer(table)
    assert ids(table, 3) == [2, 1, 3]
    table.close()


@LAYERS
def test_versions_inside_one_memtable_do_not_leak(tmp_path: Path, layer: Layer) -> None:
    """#6880, #6881: many versions of one key fill the nearest rows of its own source."""
    table = base_of(tmp_path, 0)
    for step in range(30):
        table.upsert({1: (step, at(step / 100)), 2: (step, at(50 + step))})
    table.upsert({1: (0, at(80)), 3: (0, at(90))})
    layer(table)
    assert ids(table, 2) == [2, 1]
    assert ids(table, 10) == [2, 1, 3]
    table.close()


@pytest.mark.parametrize("known", ["masked", "asked"])
def test_a_bloom_filters_false_hits_lose_no_row(
    tmp_path: Path, known: str, within: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """#6856: every key seems to be in every newer generation."""
    if known == "asked":
        within(Matched.set(inline=-1, most=-1))
    monkeypatch.setattr(BloomFilter, "check", lambda self, hashes: np.ones(len(hashes), np.bool_))
    monkeypatch.setattr(BloomFilter, "check_one", lambda self, hash: True)  # noqa: A006
    table = base_of(tmp_path)
    table.upsert({i: (i, at(100)) for i in range(3)})
    table.flush()
    table.delete([4])
    table.flush()
    plan = plan_of(table.table.snapshot(), table.query(QUERY, 10))
    assert [row["id"] for row in run(plan)] == [3, *range(5, 14)]
    (filtered,) = (node for node in nodes(plan) if isinstance(node, FilterStaleExec))
    assert (filtered.metrics["bloom_hits"] > 0) == (known == "asked")
    table.close()


@LAYERS
def test_rows_are_refilled_until_there_are_as_many_as_asked_for(
    tmp_path: Path, layer: Layer
) -> None:
    """#7916: as many stale rows as one likes in front of the live ones."""
    for count in (5, 30, 39):
        table = base_of(tmp_path / f"{count}")
        table.delete(range(count))
        layer(table)
        for k in (1, 10, 40):
            assert ids(table, k) == list(range(count, 40))[:k]
        table.close()


def test_a_source_is_asked_on_only_while_rows_are_missing(tmp_path: Path) -> None:
    table = base_of(tmp_path, 400)
    table.delete(range(3))
    plan = plan_of(table.table.snapshot(), table.query(QUERY, 10))
    assert [row["id"] for row in run(plan)] == list(range(3, 13))
    (filtered,) = (node for node in nodes(plan) if isinstance(node, FilterStaleExec))
    assert filtered.metrics["refills"] == 0
    table.delete(range(3, 100))
    plan = plan_of(table.table.snapshot(), table.query(QUERY, 10))
    assert [row["id"] for row in run(plan)] == list(range(100, 110))
    (filtered,) = (node for node in nodes(plan) if isinstance(node, FilterStaleExec))
    assert filtered.metrics["refills"] == 1
    table.close()


@LAYERS
@pytest.mark.parametrize("pushable", [True, False])
@pytest.mark.parametrize("way", ["in memory", "too many for memory", "by index"])
def test_a_filter_lets_no_replaced_row_through_and_loses_no_row(
    tmp_path: Path, layer: Layer, pushable: bool, way: str, within: Any
) -> None:
    """#6929: the filter ran below the deduplication; and a filter after the ranking underfills."""
    if way != "in memory":
        within(another_store(0))
    if way == "by index":
        within(IndexUse.set(few_least=0, few_most=0))

    def index(dataset: Any) -> None:
        if way == "by index":
            dataset.create_index("v", "IVF_FLAT", num_partitions=4, name="v_idx")

    table = base_of(tmp_path, 400, index=index)
    table.upsert({i: (300 + i, at(i)) for i in range(20)})  # they meet n < 300 no more
    table.upsert({390: (0, at(395))})
    layer(table)
    options: dict[str, Any] = {"filters": (below(300, pushable=pushable),), "nprobes": 1}
    assert ids(table, 10, **options) == list(range(20, 30))
    options["filters"] = (below(1, pushable=pushable),)
    assert ids(table, 10, **options) == [390]
    options["filters"] = (below(-5, pushable=pushable),)
    assert ids(table, 10, **options) == []
    table.close()
