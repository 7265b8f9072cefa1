"""The coded copy of vectors: what it rules out is ruled out for good, and that is nearly all."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest

from exec_nodes.vectors.column import Metric
from memwal_native import VectorCodes
from tests.each import each
from tests.exec_nodes.vectors.vectors import Matrix, measured

METRICS: tuple[Metric, ...] = ("l2", "cosine", "dot")
ROWS, DIMENSION, K = 20_000, 48, 10


def clustered(seed: int, rows: int = ROWS, middle: float = 0.0) -> Matrix:
    random = np.random.default_rng(seed)
    centres = middle + random.normal(size=(rows // 200, DIMENSION))
    noise = random.normal(scale=0.5, size=(rows, DIMENSION))
    return (centres[random.integers(0, len(centres), rows)] + noise).astype(np.float32)


def found(codes: VectorCodes, query: Matrix, most: int = K, **asked: Any) -> Matrix:
    allowed = asked.pop("allowed", None)
    flags = None if allowed is None else allowed.view(np.uint8)
    wanted = {"rows": len(codes), "allowed": flags, "least": None, "below": None, **asked}
    [rows] = codes.candidates(query[None, :].astype(np.float64), most, **wanted)
    return np.frombuffer(rows, np.int64)


def coded(matrix: Matrix, metric: Metric = "l2", valid: Matrix | None = None) -> VectorCodes:
    codes = VectorCodes(matrix.shape[1], metric)
    codes.extend(matrix, 0, valid)
    return codes


@each("metric, middle", [*itertools.product(METRICS, (0.0, 5.0))])
def test_few_rows_are_left_to_measure_and_the_nearest_are_among_them(
    metric: Metric, middle: float
) -> None:
    matrix = clustered(1, middle=middle)
    codes = coded(matrix, metric)
    queries = clustered(1, middle=middle)[::1_000] + np.float32(0.1)
    sizes = []
    for query in queries:
        rows = found(codes, query)
        nearest = np.argsort(measured(metric, matrix, query), kind="stable")[:K]
        assert np.isin(nearest, rows).all()
        assert (np.diff(rows) > 0).all()
        sizes.append(len(rows))
    # The bounds are of use: they rule out all but half a percent.
    assert np.mean(sizes) < 10 * K


def test_codes_take_a_quarter_of_the_bytes_and_three_numbers_a_row() -> None:
    matrix = clustered(2)
    expected = matrix.nbytes // 4 + 12 * ROWS + 8 * DIMENSION
    assert coded(matrix).nbytes == expected


def test_vectors_too_long_or_short_to_be_coded_are_found_by_cosine_too() -> None:
    angles = np.random.default_rng(0).random(12_000)
    matrix = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    matrix[7] = 2.5e-162
    matrix[8] = 1e300
    query = np.array([[1.0, 1.0]])
    codes = VectorCodes(2, "cosine")
    codes.extend(matrix, 0, None)
    [(rows, distances)] = codes.nearest(
        query, 1, chunks=[matrix], rows=len(matrix), allowed=None, least=None, below=None
    )
    assert np.frombuffer(rows, np.int64).tolist() == [7]
    assert np.frombuffer(distances, np.float32).tolist() == pytest.approx([0], abs=1e-6)


def test_only_rows_that_are_allowed_take_places() -> None:
    matrix = clustered(3)
    distances = measured("l2", matrix, matrix[0])
    for share in (0.5, 0.01, 0.0002):
        allowed = np.random.default_rng(4).random(ROWS) < share
        rows = found(coded(matrix), matrix[0], allowed=allowed)
        best = np.argsort(np.where(allowed, distances, np.inf), kind="stable")
        assert allowed[rows].all()
        assert np.isin(best[: min(K, allowed.sum())], rows).all()


def test_a_prefix_is_searched_as_if_the_other_rows_were_not_there() -> None:
    matrix = clustered(5, rows=2_000)
    codes = VectorCodes(DIMENSION, "l2")
    for end in (1, 15, 16, 17, 400, 2_000):
        # What is known is passed over: views of a growing MemTable begin at its first row.
        codes.extend(matrix[:end], 0, None)
        assert len(codes) == end
        for rows in {1, end // 2 or 1, end}:
            nearest = np.argsort(measured("l2", matrix[:rows], matrix[7]), kind="stable")[:K]
            assert np.isin(nearest, found(codes, matrix[7], rows=rows)).all()
            assert found(codes, matrix[7], rows=rows).max() < rows
    codes.extend(matrix[1_000:], 1_000, None)
    assert len(codes) == 2_000


def test_rows_without_vectors_and_zero_vectors_take_no_places() -> None:
    matrix = clustered(6)
    valid = np.ones(ROWS, np.uint8)
    valid[::2] = 0
    matrix[1::4] = 0
    for metric in ("cosine", "l2"):
        rows = found(coded(matrix, metric, valid), matrix[3])
        assert (rows % 2 == 1).all()
        distances = measured(metric, matrix, matrix[3])
        distances[::2] = np.nan
        assert np.isin(np.argsort(distances)[:K], rows).all()
        assert metric == "l2" or (rows % 4 != 1).all()


def test_vectors_that_can_not_be_coded_are_left_to_be_measured() -> None:
    matrix = clustered(7)
    matrix[[5, 60, 700]] = np.array([[np.nan], [np.inf], [1e30]])
    assert np.isin([5, 60, 700], found(coded(matrix), matrix[0])).all()
    huge = np.full(DIMENSION, 1e30)
    assert len(found(coded(matrix), huge)) == ROWS, "nothing is certain of such a query"


def test_threads_may_search_while_others_append() -> None:
    matrix = clustered(8)
    codes = VectorCodes(DIMENSION, "l2")
    codes.extend(matrix[:1_000], 0, None)
    expected = found(codes, matrix[3], rows=1_000).tolist()
    others = [threading.Thread(target=codes.extend, args=(matrix, 0, None)) for _ in range(3)]
    for thread in others:
        thread.start()
    for _ in range(20):
        assert found(codes, matrix[3], rows=1_000).tolist() == expected
    for thread in others:
        thread.join()
    assert len(codes) == ROWS


def test_arrays_that_do_not_fit_are_refused() -> None:
    codes = coded(clustered(9, rows=400))
    query = np.zeros(DIMENSION)
    with pytest.raises(ValueError, match="the same rows"):
        found(codes, query, rows=401)
    with pytest.raises(ValueError, match="the same rows"):
        found(codes, query, allowed=np.ones(399, np.bool_))
    with pytest.raises(ValueError, match="the same rows"):
        found(codes, np.zeros(DIMENSION - 1))
    with pytest.raises(ValueError, match="follow those in memory"):
        codes.extend(np.zeros((3, DIMENSION), np.float32), 401, None)
    with pytest.raises(ValueError, match="whole vectors"):
        codes.extend(np.zeros(DIMENSION + 1, np.float32), 400, None)
    with pytest.raises(ValueError, match="l2, dot or cosine"):
        VectorCodes(3, "hamming")
    with pytest.raises(ValueError, match="at least one element"):
        VectorCodes(0, "l2")
