"""IVF_PQ with its defaults, over a base table of which much is stale, finds what the merged table
would (issue "What must be shown")."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exec_nodes.knn_exec import KNNExec
from exec_nodes.node import Node
from exec_nodes.vectors.index_search import IndexUse
from tests.exec_nodes.tables import nodes
from tests.model.resident import another_store
from tests.search.vector_tables import Vector, VectorTable, below, plan_of, run
from tests.soak import usual

ROWS, DIMENSION, QUERIES, K = 6_000, 32, 30, 10
GENERATIONS = 3


def clustered(random: np.random.Generator, count: int, centres: Any) -> Any:
    chosen = centres[random.integers(0, len(centres), count)]
    return (chosen + random.normal(scale=0.5, size=chosen.shape)).astype(np.float32)


def index(dataset: Any) -> None:
    dataset.create_index("v", "IVF_PQ", num_partitions=32, num_sub_vectors=8, name="v_idx")


def answers(plan: Node) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in range(QUERIES)]
    for row in run(plan):
        found[row["query_index"]].add(row["id"])
    return found


def recall(found: list[set[int]], truth: list[set[int]]) -> float:
    return sum(len(f & t) for f, t in zip(found, truth, strict=True)) / (K * QUERIES)


@pytest.mark.parametrize(
    ("kept", "share"),
    usual([*product(["in memory", "too many for memory"], [0.2, 0.99])], 2),
)
def test_the_defaults_find_what_the_merged_table_would(
    tmp_path: Path, share: float, kept: str, within: Any
) -> None:
    within(another_store(0 if kept == "too many for memory" else 1 << 28))
    check_recall(tmp_path / "t", ROWS, share, index)


@pytest.mark.parametrize(
    ("kind", "share"),
    usual([*product(["IVF_HNSW_FLAT", "IVF_HNSW_SQ", "IVF_HNSW_PQ"], [0.2, 0.99])], 3),
)
def test_graphs_find_live_rows_among_many_stale_ones(
    tmp_path: Path, share: float, kind: str, within: Any
) -> None:
    """A graph is searched around the rows that a mask leaves out."""
    within(another_store(0))
    within(IndexUse.set(few_least=0, few_share=1_000))
    codes = {"num_sub_vectors": 8} if kind.endswith("PQ") else {}

    def index(dataset: Any) -> None:
        dataset.create_index("v", kind, num_partitions=4, name="v_idx", **codes)

    check_recall(tmp_path / "t", ROWS // 3, share, index)


def check_recall(folder: Path, rows: int, share: float, index: Callable[[Any], object]) -> None:
    """A table of which such a share of the base is replaced or deleted, searched with filters that
    leave all, some and few rows."""
    random = np.random.default_rng(31)
    centres = random.normal(size=(60, DIMENSION))
    base: dict[int, tuple[int, Vector]] = {
        i: (i % 100, v) for i, v in enumerate(clustered(random, rows, centres))
    }
    table = VectorTable.over(folder, base, index=index)
    stale = random.permutation(rows)[: int(rows * share)].tolist()
    for part in np.array_split(stale, GENERATIONS):
        vectors = clustered(random, len(part), centres)
        # Half of each generation replaces rows, the other half deletes them.
        replaced = part[: len(part) // 2].tolist()
        table.upsert({i: (i % 100, v) for i, v in zip(replaced, vectors, strict=False)})
        table.delete(part[len(part) // 2 :].tolist())
        table.flush()
    queries = clustered(random, QUERIES, centres)
    for limit in (100, 30, 2):
        ids = np.array([i for i, (n, _) in table.live.items() if n < limit])
        matrix = np.stack([table.live[i][1] for i in ids.tolist()])  # type: ignore[arg-type]
        truth = [
            set(ids[np.argsort(((matrix - q) ** 2).sum(axis=1))[:K]].tolist()) for q in queries
        ]
        filters = () if limit == 100 else (below(limit),)
        plan = plan_of(table.table.snapshot(), table.query(queries, K, filters=filters))
        found = answers(plan)
        assert [len(f) for f in found] == [min(K, len(ids))] * QUERIES
        assert all(f <= set(ids.tolist()) for f in found)
        assert recall(found, truth) >= 0.98
    table.close()


def test_the_index_is_what_gives_that_recall(tmp_path: Path, within: Any) -> None:
    """The control: with one candidate for each row, as the index ranks them, recall is poor; and
    the plan says which sources have the index."""
    within(another_store(0))
    within(IndexUse.set(fewest_refined=0))
    random = np.random.default_rng(32)
    centres = random.normal(size=(60, DIMENSION))
    base: dict[int, tuple[int, Vector]] = {
        i: (0, v) for i, v in enumerate(clustered(random, ROWS, centres))
    }
    table = VectorTable.over(tmp_path / "t", base, index=index)
    queries = clustered(random, QUERIES, centres)
    snapshot = table.table.snapshot()
    exact = answers(plan_of(snapshot, table.query(queries, K, exact=True)))
    rough = plan_of(snapshot, table.query(queries, K, refine_factor=1))
    labels = [node.label() for node in nodes(rough) if isinstance(node, KNNExec)]
    assert labels == [
        f"KNNExec: base_table[gen=-1], version={table.table.version}, column=v, k=10, metric=l2, "
        "index=v_idx(IVF_PQ), filter=[]"
    ]
    assert recall(answers(rough), exact) < 0.9
    assert recall(answers(plan_of(snapshot, table.query(queries, K))), exact) >= 0.98
    table.close()
