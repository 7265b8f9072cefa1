"""FuseExec and ProjectionExec over rows in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from exec_nodes.base.columns import DISTANCE_ROWS, SCORE_ROWS
from exec_nodes.fuse_exec import FuseExec
from exec_nodes.node import draw
from exec_nodes.projection_exec import ProjectionExec
from tests.sql.fakes import Rows

Place = tuple[int, int]


def ranked(schema: pa.Schema, places: Sequence[Place], batches: int = 1) -> Rows:
    """Narrow rows at (source, address), the best first, with the ranks as values."""
    columns = [
        pa.array([address for _, address in places], pa.uint64()),
        pa.array([source for source, _ in places], pa.int32()),
        pa.array(np.arange(len(places), dtype=np.float32)),
    ]
    whole = pa.RecordBatch.from_arrays(columns, schema=schema)
    size = -(-len(places) // batches) or 1
    parts = [whole.slice(start, size) for start in range(0, len(places), size)]
    return Rows(schema, (tuple(parts),))


def fused(node: FuseExec) -> dict[Place, tuple[float | None, float | None, float]]:
    found = {}
    for batch in node.execute():
        assert batch.schema == node.schema
        for row in batch.to_pylist():
            place = (row["_source"], row["_rowaddr"])
            assert place not in found
            found[place] = (row["_distance"], row["_score"], row["_relevance_score"])
    return found


@pytest.mark.parametrize("batches", [1, 2])
def test_a_row_s_score_is_the_sum_of_its_reciprocal_ranks(batches: int) -> None:
    """Ranks count from 1; the same address in two sources is two rows."""
    vector = ranked(DISTANCE_ROWS, [(0, 7), (1, 7), (0, 2**40)], batches)
    text = ranked(SCORE_ROWS, [(1, 7), (2, 1)], batches)
    assert fused(FuseExec((vector, text), (1.0, 3.0), 60.0)) == {
        (0, 7): (0.0, None, pytest.approx(1 / 61)),
        (1, 7): (1.0, 0.0, pytest.approx(1 / 62 + 3 / 61)),
        (0, 2**40): (2.0, None, pytest.approx(1 / 63)),
        (2, 1): (None, 1.0, pytest.approx(3 / 62)),
    }


def test_rankings_without_rows_are_fused_too() -> None:
    empty = ranked(DISTANCE_ROWS, [])
    text = ranked(SCORE_ROWS, [(0, 1)])
    assert fused(FuseExec((empty, text), (1.0, 1.0), 60.0)) == {
        (0, 1): (None, 0.0, pytest.approx(1 / 61))
    }
    assert fused(FuseExec((empty, ranked(SCORE_ROWS, [])), (1.0, 1.0), 60.0)) == {}


def test_nodes_say_what_they_do() -> None:
    both = FuseExec((ranked(DISTANCE_ROWS, [(0, 1)]), ranked(SCORE_ROWS, [])), (1.0, 0.5), 10.0)
    node = ProjectionExec(both, ("_relevance_score", "_rowaddr"))
    assert draw(node).splitlines() == [
        "ProjectionExec: columns=[_relevance_score, _rowaddr]",
        "  FuseExec: reciprocal_rank, k=10, weights=[1, 0.5]",
        "    RowsExec",
        "    RowsExec",
    ]
    (batch,) = node.execute()
    assert batch.schema.names == ["_relevance_score", "_rowaddr"]
    (counted,) = ProjectionExec(both, ()).execute()
    assert (counted.num_rows, counted.num_columns) == (1, 0)
