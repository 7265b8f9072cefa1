"""Sets of rows with scores against dicts: by sorting, and through arrays of a size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_nodes.text.scoring.matches import (
    Matches,
    added,
    best_of,
    common_rows,
    locate,
    sum_where,
    without,
)

ROWS = 40
# None: row numbers have no bound. A size far above the rows means few of many, so that sorting and
# searching are chosen; one just above them, arrays.
SIZES = [None, ROWS, 100_000]
rows = st.dictionaries(st.integers(0, ROWS - 1), st.integers(-3, 9), max_size=ROWS)
parts = st.lists(rows, min_size=1, max_size=5)


def matches(scores: dict[int, int]) -> Matches:
    numbers = sorted(scores)
    return Matches(np.array(numbers, np.int32), np.array([scores[n] for n in numbers], np.float32))


def model(found: Matches) -> dict[int, float]:
    assert (np.diff(found.rows.astype(np.int64)) > 0).all()
    assert found.scores.dtype == np.float32
    return dict(zip(found.rows.tolist(), found.scores.tolist(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@given(parts, st.data())
def test_sum_where_counts_and_adds(
    size: int | None, given_parts: list[dict[int, int]], data: st.DataObject
) -> None:
    counts = data.draw(
        st.lists(st.integers(1, 3), min_size=len(given_parts), max_size=len(given_parts))
    )
    required = data.draw(st.integers(0, sum(counts)))
    expected = {}
    for row in range(ROWS):
        holding = [n for n, part in enumerate(given_parts) if row in part]
        if holding and sum(counts[n] for n in holding) >= required:
            expected[row] = sum(given_parts[n][row] for n in holding)
    found = sum_where(list(map(matches, given_parts)), required, size, counts)
    assert model(found) == expected


@pytest.mark.parametrize("size", SIZES)
@given(parts)
def test_best_of_takes_the_highest_score(
    size: int | None, given_parts: list[dict[int, int]]
) -> None:
    found = best_of(list(map(matches, given_parts)), size)
    rows_of_any = set().union(*given_parts)
    assert model(found) == {
        row: max(part[row] for part in given_parts if row in part) for row in rows_of_any
    }


@pytest.mark.parametrize("size", SIZES)
@given(rows, st.lists(rows, max_size=4), st.integers(0, 4))
def test_added_keeps_the_rows_that_enough_of_the_others_have(
    size: int | None, base: dict[int, int], others: list[dict[int, int]], required: int
) -> None:
    found = added(matches(base), list(map(matches, others)), required, size)
    assert model(found) == {
        row: score + sum(other.get(row, 0) for other in others)
        for row, score in base.items()
        if sum(row in other for other in others) >= required
    }


@pytest.mark.parametrize("size", SIZES)
@given(rows, parts)
def test_common_rows_and_without_and_locate(
    size: int | None, base: dict[int, int], given_parts: list[dict[int, int]]
) -> None:
    sets = [matches(part).rows for part in given_parts]
    common = set(given_parts[0]).intersection(*given_parts)
    assert common_rows(sets, size).tolist() == sorted(common)
    other = matches(given_parts[0])
    kept = {row: score for row, score in base.items() if row not in given_parts[0]}
    assert model(without(matches(base), other, size)) == kept
    places, found = locate(other.rows, matches(base).rows, size)
    assert found.tolist() == [row in given_parts[0] for row in sorted(base)]
    assert other.rows[places[found]].tolist() == sorted(base.keys() & given_parts[0].keys())
