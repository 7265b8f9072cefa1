"""A table in use: small upserts of random keys, and what it has after each of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from benchmarks.support.data import WrongResultError, rows
from benchmarks.support.sizes import Sizes


class Feed:
    """Upserts into a table whose ids count from 0, keys to look up, and the right answers.

    Attributes:
        base: the rows that the table has at first.
    """

    def __init__(self, sizes: Sizes) -> None:
        self.base = rows(np.arange(sizes.base_rows, dtype=np.int64), 0)
        self._sizes = sizes
        self._random = np.random.default_rng(7)
        self._values = self.base["val"].to_numpy().copy()

    def upserts(self) -> Iterator[pa.Table]:
        """Each with distinct keys. Answers are checked against all that were given so far."""
        sizes = self._sizes
        for seed in range(1, sizes.mixed_upserts + 1):
            ids = self._random.choice(sizes.base_rows, sizes.append_rows, replace=False)
            part = rows(ids, seed)
            self._values[ids] = part["val"].to_numpy()
            yield part

    def key(self) -> int:
        """Some key of the table."""
        return int(self._random.integers(self._sizes.base_rows))

    def check_aggregate(self, count: int, mean: float, who: str) -> None:
        """Raise unless these are `count(*), avg(val)` of now."""
        if count != len(self._values) or not math.isclose(mean, self._values.mean(), rel_tol=1e-9):
            raise WrongResultError(f"{who}: {count} rows, avg(val) {mean}: {self._values.mean()}")

    def check_row(self, key: int, values: Sequence[float], who: str) -> None:
        """Raise unless these are the `val` of all rows of `key` of now."""
        if list(values) != [self._values[key]]:
            raise WrongResultError(f"{who}: key {key} has {values}: {self._values[key]}")
