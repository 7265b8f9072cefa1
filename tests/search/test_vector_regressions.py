"""What a vector search asks of newer sources, and of its own once more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.filter_stale_exec import FilterStaleExec
from exec_nodes.keys.bloom import BloomFilter
from exec_nodes.liveness.masks import Matched
from tests.exec_nodes.tables import nodes
from tests.search.vector_tables import Vector, VectorTable, plan_of, run

QUERY = np.zeros(6)


def at(distance: float) -> npt.NDArray[Any]:
    """A vector at this (squared) distance from QUERY."""
    return np.array([distance**0.5, 0, 0, 0, 0, 0], np.float32)


def base_of(path: Path, count: int = 40, **options: Any) -> VectorTable:
    """Row i is at distance i."""
    rows: dict[int, tuple[int, Vector]] = {i: (i, at(i)) for i in range(count)}
    return VectorTable.over(path / "t", rows, **options)


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


def test_the_longest_vectors_are_ranked_exactly() -> None:
    """Whose products with codes, summed up, exceed 32 bits."""
    dimension, rows = 270_000, 12
    vector = pa.list_(pa.float32(), dimension)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", vector)])
    lengths = np.array([(-1 + 2 * (row % 2)) * (1 + row / 1000) for row in range(rows)])
    flat = pa.array(np.repeat(lengths.astype(np.float32), dimension))
    vectors = pa.FixedSizeListArray.from_arrays(flat, type=vector)
    table = mw.create_table("memory://long", schema, primary_key="id")
    with table.writer() as writer:
        writer.upsert(pa.table([pa.array(range(rows)), vectors], schema=schema))
        found = table.vector_search("v", np.ones(dimension), k=3, columns=["id"])
    assert found["id"].to_pylist() == [1, 3, 5]
