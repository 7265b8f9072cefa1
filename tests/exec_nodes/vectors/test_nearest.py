"""Exhaustive search is exact, whatever the vectors are like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exec_nodes.vectors.column import Metric
from exec_nodes.vectors.nearest import NO_BOUNDS, Bounds, Candidates, nearest, nearest_of
from tests.each import each
from tests.exec_nodes.vectors.vectors import Matrix, column, measured

METRICS: tuple[Metric, ...] = ("l2", "cosine", "dot")


def expected(
    matrix: Matrix,
    query: Matrix,
    most: int,
    metric: Metric,
    counts: Matrix,
    bounds: Bounds = NO_BOUNDS,
) -> list[tuple[float, int]]:
    """The nearest (distance, address) among the rows for which `counts` is true, and those that are
    as near as the last one."""
    found = measured(metric, matrix, query)
    rows = [
        (float(distance), 10 + 2 * row)
        for row, distance in enumerate(found)
        if counts[row] and bounds.met(np.array([distance], np.float32))[0]
    ]
    rows.sort()
    return rows[:most] + [row for row in rows[most:] if row[0] == rows[most - 1][0]]


def of_query(found: Candidates, query: int) -> list[tuple[float, int]]:
    part = found.where(found.queries == query)
    return list(zip(part.distances.tolist(), part.addresses.tolist(), strict=True))


# Far from the origin rounding errors are larger than the distances; tiny and huge lengths under-
# and overflow in products of float32.
SHAPES: dict[str, Any] = {
    "around the origin": lambda r, n: r.normal(size=(n, 6)),
    "far away": lambda r, n: 1e4 + r.normal(size=(n, 6)),
    "equal rows": lambda r, n: np.repeat(r.normal(size=(3, 6)), n, axis=0)[:n],
    "all lengths": lambda r, n: r.normal(size=(n, 6)) * 10.0 ** r.integers(-37, 38, (n, 1)),
    "odd values": lambda r, n: r.choice([0, 0, 1, -2, np.nan, np.inf, -np.inf], (n, 6)),
}


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 60),
    most=st.integers(1, 12),
    kind=st.sampled_from([np.float32, np.float64]),
    metric=st.sampled_from(METRICS),
    pick=st.sampled_from(["all", "few", "many"]),
)
def test_the_nearest_rows_are_found_exactly(
    shape: str, seed: int, rows: int, most: int, kind: type, metric: Metric, pick: str
) -> None:
    random = np.random.default_rng(seed)
    matrix = SHAPES[shape](random, rows).astype(kind)
    queries = np.concatenate([matrix[:1], random.normal(size=(1, 6)).astype(kind)])
    queries[~np.isfinite(queries)] = 1
    held = column(matrix, int(random.integers(1, 4)))
    counts = np.ones(rows, np.bool_)
    if pick != "all":
        counts = random.random(rows) < (0.1 if pick == "few" else 0.7)
    chosen = None if pick == "all" else counts
    found = nearest(held, queries, most, metric, counts=chosen)
    for place, query in enumerate(queries):
        if metric == "cosine" and not query.any():
            continue
        wanted = expected(matrix, query, most, metric, counts)
        got = of_query(found, place)
        assert [d for d, _ in got] == pytest.approx([d for d, _ in wanted], rel=1e-6, abs=1e-12)
        different = {d for d, _ in wanted if np.isfinite(d)}
        if len(different) == len(wanted) and shape == "around the origin":
            assert got == [(pytest.approx(d, rel=1e-6, abs=1e-12), a) for d, a in wanted]


def test_all_rows_come_that_are_as_near_as_the_last_one() -> None:
    matrix = np.ones((50, 4), np.float32)
    matrix[:3] = 2
    for parts in (1, 3):
        found = nearest(column(matrix, parts), matrix[[9, 0]], 5, "l2")
        assert of_query(found, 0) == [(0.0, 10 + 2 * row) for row in range(3, 50)]
        assert [distance for distance, _ in of_query(found, 1)] == [0.0] * 3 + [4.0] * 47


@each("metric", METRICS)
@each("bounds", [(None, 0.9), (0.9, None), (0.5, 1.2), (5, None), (None, -9)])
def test_bounds_hold_the_lower_end_and_not_the_upper(
    metric: Metric, bounds: tuple[float | None, float | None]
) -> None:
    random = np.random.default_rng(8)
    matrix = random.normal(size=(300, 3)).astype(np.float32) / 2
    exact = measured(metric, matrix, matrix[0])
    limits = Bounds(*bounds)
    counts = np.ones(300, np.bool_)
    found = nearest(column(matrix), matrix[:1], 7, metric, bounds=limits)
    assert of_query(found, 0) == expected(matrix, matrix[0], 7, metric, counts, limits)
    # A bound that is a distance itself.
    tie = float(np.sort(exact)[20])
    for limits in (Bounds(tie, None), Bounds(None, tie)):
        found = nearest(column(matrix), matrix[:1], 300, metric, bounds=limits)
        assert (np.float32(tie) in found.distances) == (limits.lower is not None)
        assert of_query(found, 0) == expected(matrix, matrix[0], 300, metric, counts, limits)


def test_bits_are_counted_in_any_dimension() -> None:
    random = np.random.default_rng(9)
    for dimension in (3, 8, 16):
        matrix = random.integers(0, 256, (100, dimension), np.uint8)
        found = nearest(column(matrix, 3), matrix[:2], 6, "hamming")
        for place in (0, 1):
            wanted = expected(matrix, matrix[place], 6, "hamming", np.ones(100, np.bool_))
            assert of_query(found, place) == wanted


def test_the_nearest_of_several_parts_are_merged_by_query() -> None:
    random = np.random.default_rng(11)
    matrix = random.normal(size=(90, 5)).astype(np.float32)
    whole = nearest(column(matrix), matrix[:3], 6, "l2")
    held = column(matrix)
    third = np.arange(90) % 3
    parts = [nearest(held, matrix[:3], 6, "l2", counts=third == part) for part in range(3)]
    merged = nearest_of(parts, 6)
    for name in ("queries", "addresses", "distances"):
        assert getattr(merged, name).tolist() == getattr(whole, name).tolist()
    assert len(nearest_of([], 6)) == 0
    rest = whole.without(parts[0])
    assert set(rest.addresses.tolist()) == {a for a in whole.addresses.tolist() if (a - 10) % 6}
