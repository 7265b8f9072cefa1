"""The plan of a vector search, and what can't be asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from exec_nodes.base.errors import InvalidCallError
from exec_nodes.base.index_info import IndexInfo
from exec_nodes.node import draw
from exec_nodes.resident.store import ResidentStore
from exec_nodes.sources.lance_source import LanceSource
from planner.model import Snapshot, TableInfo
from planner.search.vector import VectorQuery, plan_vector_search
from tests.each import each
from tests.exec_nodes.tables import memory_base, memtable, snapshot, where

VECTOR = pa.list_(pa.float32(), 3)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        ("val", pa.int64()),
        ("v", VECTOR),
        ("half", pa.list_(pa.float16(), 3)),
        ("bits", pa.list_(pa.uint8(), 2)),
        ("words", pa.list_(pa.string(), 3)),
        ("long", pa.list_(pa.float32())),
        ("query_index", pa.int32()),
    ]
)
INFO = TableInfo(SCHEMA, ("id",))
QUERY = VectorQuery("v", np.array([[1.0, 2, 3]]), 10, ("id",))
IVF = IndexInfo("v_idx", "v", "IVF_PQ", "cosine")


def of(*indexes: IndexInfo) -> Snapshot:
    generation = LanceSource.flushed(
        "memory://never-opened", region="a", generation=1, info=INFO, resident=ResidentStore()
    )
    found = snapshot(memory_base([]), (memtable([], 2), generation), info=INFO)
    return replace(found, indexes=indexes)


def test_the_plan_has_the_shape_of_the_specification_and_opens_nothing() -> None:
    query = replace(QUERY, filters=(where("val", ">", 5),))
    assert draw(plan_vector_search(query, of(IVF))) == "\n".join(
        [
            "TakeExec: columns=[id]",
            "  GlobalLimitExec: limit=10",
            "    SortExec: order_by=[_distance ASC]",
            "      FilterStaleExec: asked=[keys[region_a][gen=2]]",
            "        UnionExec",
            *(
                f"          KNNExec: {source}, column=v, k=10, metric=cosine, index={index}, "
                "filter=[val > 5]"
                for source, index in (
                    ("base_table[gen=-1]", "brute_force"),
                    ("region_a[gen=2]", "brute_force"),
                    ("region_a[gen=1]", "v_idx(IVF_PQ)"),
                )
            ),
        ]
    )


@each(
    "options, metric, index",
    [
        ({}, "cosine", "v_idx(IVF_PQ)"),
        ({"metric": "COSINE"}, "cosine", "v_idx(IVF_PQ)"),
        ({"metric": "l2"}, "l2", "brute_force"),
        ({"exact": True}, "cosine", "brute_force"),
        ({"lower_bound": 0.5}, "cosine", "brute_force"),
        ({"upper_bound": 0.5}, "cosine", "v_idx(IVF_PQ)"),
        ({"column": "half"}, "l2", "brute_force"),
        ({"column": "bits", "vectors": np.array([[0, 255]])}, "hamming", "brute_force"),
    ],
)
def test_metric_and_index_go_together(options: dict[str, Any], metric: str, index: str) -> None:
    other = IndexInfo("val_idx", "val", "BTREE")
    plan = plan_vector_search(replace(QUERY, **options), of(other, IVF))
    label = draw(plan).splitlines()[-1]
    assert f"metric={metric}, index={index}" in label


def test_several_vectors_say_whose_a_row_is() -> None:
    plan = plan_vector_search(replace(QUERY, vectors=np.ones((2, 3))), of())
    assert plan.schema.names == ["id", "_distance", "query_index"]
    assert "SortExec: order_by=[_query ASC, _distance ASC]" in draw(plan)
    assert plan_vector_search(QUERY, of()).schema.names == ["id", "_distance"]
    assert plan_vector_search(replace(QUERY, vectors=np.ones(3)), of()).schema.names == [
        "id",
        "_distance",
    ]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"column": "nowhere"}, "unknown column 'nowhere'; the table has"),
    ({"column": "val"}, "'val' of type int64 holds no vectors"),
    ({"column": "words"}, "holds no vectors"),
    ({"column": "long"}, "fixed size lists"),
    ({"vectors": np.ones((1, 4))}, "4 dimensions, but column 'v' has 3"),
    ({"vectors": np.ones((1, 0))}, "not a vector"),
    ({"vectors": np.ones((0, 3))}, "not a vector"),
    ({"vectors": np.ones((1, 1, 3))}, "not a vector"),
    ({"vectors": np.array([["a", "b", "c"]])}, "not a vector"),
    ({"vectors": np.array([None])}, "not a vector"),
    ({"vectors": np.array([[1, np.nan, 3]])}, "element 1 of the query is nan"),
    ({"vectors": np.array([[1, 2, 1e39]])}, "element 2 of the query is 1e"),
    ({"column": "half", "vectors": np.array([[1, 2, 1e5]])}, "halffloat: every element must be"),
    ({"column": "bits", "vectors": np.array([[1, 256]])}, "0 to 255"),
    ({"column": "bits", "vectors": np.array([[1, 0.5]])}, "0 to 255"),
    ({"vectors": np.zeros((1, 3)), "metric": "cosine"}, "zero vector"),
    ({"metric": "hamming"}, "metric='hamming' does not measure vectors of float"),
    ({"metric": "nearby"}, "use one of ['l2', 'cosine', 'dot']"),
    ({"column": "bits", "vectors": np.ones((1, 2)), "metric": "l2"}, "use one of ['hamming']"),
    ({"k": 0}, "k=0 must be a whole number, 1 or more"),
    ({"k": -3}, "k=-3 must be"),
    ({"k": 2.5}, "k=2.5 must be"),
    ({"k": True}, "k=True must be"),
    ({"nprobes": 0}, "nprobes=0 must be"),
    ({"refine_factor": -1}, "refine_factor=-1 must be"),
    ({"ef": "many"}, "ef='many' must be"),
    ({"lower_bound": float("nan")}, "lower_bound=nan must be a distance"),
    ({"upper_bound": "far"}, "upper_bound='far' must be a distance"),
    ({"lower_bound": 2, "upper_bound": 2}, "leave no distance between them"),
    ({"columns": ("id", "nowhere")}, "unknown columns ['nowhere']"),
    ({"columns": ("id", "id")}, "names a column twice"),
    ({"columns": ("query_index",), "vectors": np.ones((2, 3))}, "'query_index'"),
]


@each("options, message", WRONG)
def test_what_can_not_be_asked_is_refused_with_the_remedy(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidCallError) as caught:
        plan_vector_search(replace(QUERY, **options), of())
    assert message in str(caught.value)


def test_a_table_without_rows_has_none(tmp_path: Path) -> None:
    plan = plan_vector_search(QUERY, replace(snapshot(memory_base([])), info=INFO))
    assert [batch.num_rows for batch in plan.execute()] == []
