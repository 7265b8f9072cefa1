"""Distances are Lance's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from exec_nodes.vectors.column import Metric, distances
from tests.exec_nodes.vectors.vectors import Matrix, arrow


def by_lance(folder: Path, column: pa.Array, query: Matrix, metric: Metric) -> dict[int, float]:
    dataset = lance.write_dataset(pa.table({"v": column}), folder)
    found = dataset.scanner(
        columns=["_distance"],
        nearest={"column": "v", "q": query, "k": len(column), "metric": metric},
        with_row_id=True,
    ).to_table()
    return dict(zip(found["_rowid"].to_pylist(), found["_distance"].to_pylist(), strict=True))


KINDS: list[tuple[type, Metric]] = [
    (kind, metric)
    for kind in (np.float16, np.float32, np.float64)
    for metric in ("l2", "cosine", "dot")
]
KINDS.append((np.uint8, "hamming"))


@pytest.mark.parametrize(("kind", "metric"), KINDS)
def test_distances_are_as_lance_defines_them(tmp_path: Path, kind: type, metric: Metric) -> None:
    random = np.random.default_rng(3)
    for dimension in (8, 11):
        matrix = (random.normal(size=(200, dimension)) * 60 + 100).astype(kind)
        expected = by_lance(tmp_path / f"{dimension}", arrow(matrix), matrix[7], metric)
        found = distances(metric, matrix, matrix[7])
        assert found.dtype == np.float32
        assert len(expected) == 200
        assert list(expected.values()) == pytest.approx(
            [float(found[row]) for row in expected], rel=3e-6, abs=3e-6
        )


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_what_has_no_distance_in_lance_has_none_here(tmp_path: Path, metric: Metric) -> None:
    matrix = np.random.default_rng(4).normal(size=(8, 4)).astype(np.float32)
    matrix[1] = 0
    matrix[2, 3] = np.nan
    matrix[3, 0] = np.inf
    expected = by_lance(tmp_path / "t", arrow(matrix), matrix[0], metric)
    found = distances(metric, matrix, matrix[0])
    assert set(np.flatnonzero(~np.isnan(found)).tolist()) == set(expected)
    for row, distance in expected.items():
        assert float(found[row]) == pytest.approx(distance, rel=1e-5, abs=1e-6)


def test_equal_vectors_are_equally_far_wherever_they_are() -> None:
    random = np.random.default_rng(5)
    query, one = random.normal(size=(2, 100))
    for metric in ("l2", "cosine", "dot"):
        alone = distances(metric, one[None, :], query)[0]
        for rows in (2, 3, 17, 1000):
            matrix = random.normal(size=(rows, 100))
            matrix[[0, -1]] = one
            assert set(distances(metric, matrix, query)[[0, -1]].tolist()) == {float(alone)}


FILE = Path(__file__).parents[3] / "native" / "src" / "vectors" / "dot_products.rs"


def test_products_are_the_same_on_every_processor(tmp_path: Path) -> None:
    path = os.pathsep.join([os.environ["PATH"], str(Path.home() / ".cargo" / "bin")])
    program = tmp_path / "products"
    build = ["rustc", "--edition=2024", "--test", "-O", "-Adead_code", "-o", program, FILE]
    subprocess.run(build, check=True, env={**os.environ, "PATH": path})
    done = subprocess.run([program], check=True, capture_output=True, text=True)
    assert "1 passed" in done.stdout
