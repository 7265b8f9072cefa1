"""Sums of the scores of rows that enough parts have, against dicts.

Searches of small tables, as in test_evaluate.py, use arrays only.
"""

from __future__ import annotations

from random import Random

import numpy as np

from exec_nodes.text.scoring.matches import Matches, sum_where
from tests.soak import SOAK

ROWS = 40
# None: row numbers have no bound. A size far above the rows means few of many, so that sorting and
# searching are chosen; one just above them, arrays.
SIZES = [None, ROWS, 100_000]


def matches(scores: dict[int, int]) -> Matches:
    numbers = sorted(scores)
    return Matches(np.array(numbers, np.int32), np.array([scores[n] for n in numbers], np.float32))


def test_sum_where_counts_and_adds() -> None:
    rng = Random("parts")
    for _ in range(300 * SOAK):
        parts = [
            {row: rng.randint(-3, 9) for row in rng.sample(range(ROWS), rng.choice([0, 5, ROWS]))}
            for _ in range(rng.randint(1, 5))
        ]
        counts = [rng.randint(1, 3) for _ in parts]
        required = rng.randint(0, sum(counts))
        pairs = list(zip(parts, counts, strict=True))
        expected = {
            row: sum(part.get(row, 0) for part in parts)
            for row in sorted(set().union(*parts))
            if sum(count for part, count in pairs if row in part) >= required
        }
        for size in SIZES:
            result = sum_where(list(map(matches, parts)), required, size, counts)
            assert result.scores.dtype == np.float32
            assert result.rows.tolist() == list(expected)
            assert result.scores.tolist() == list(expected.values())
