"""Generated documents whose words are as unevenly frequent as those of a language."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.support.data import Ids

TEXT_SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("body", pa.string())])
# As the words are made up, nothing is to be stemmed or left out.
ANALYZER = {"stem": False, "remove_stop_words": False}
_WORDS = 100_000
_LENGTHS = (20, 51)
# Ranks of words by frequency.
_HIGH, _MIDDLE, _LOW = (2, 40), (500, 2_000), (20_000, 90_000)
_CLASSES: Mapping[str, tuple[tuple[int, int], ...]] = {
    "one frequent word": (_HIGH,),
    "a frequent and a middling word": (_HIGH, _MIDDLE),
    "two frequent, a middling and a rare word": (_HIGH, _HIGH, _MIDDLE, _LOW),
    "four frequent words": (_HIGH,) * 4,
    "the two commonest words": ((0, 1), (1, 2)),
}


def documents(ids: Ids, seed: int) -> pa.Table:
    """One row an id, with a text of 20 to 50 words."""
    random = np.random.default_rng(seed)
    lengths = random.integers(*_LENGTHS, len(ids))
    ranks = _cumulated().searchsorted(random.random(int(lengths.sum()))).astype(np.int32)
    words = pa.array([_word(rank) for rank in range(_WORDS)]).take(pa.array(ranks))
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    bodies = pc.binary_join(pa.ListArray.from_arrays(pa.array(ends), words), " ")
    return pa.table([pa.array(ids), bodies], schema=TEXT_SCHEMA)


def queries(count: int, rows: int) -> dict[str, list[str]]:
    """By the kind of query: `count` of them; rare words are rarer than `rows` documents allow."""
    random = np.random.default_rng(17)
    most = min(_WORDS, rows)

    def query(ranks: tuple[tuple[int, int], ...]) -> str:
        return " ".join(
            _word(int(random.integers(min(low, most // 2), min(high, most)))) for low, high in ranks
        )

    return {name: [query(ranks) for _ in range(count)] for name, ranks in _CLASSES.items()}


@cache
def _cumulated() -> npt.NDArray[np.float64]:
    """The share of all words that the commonest 1, 2, ... words have (Zipf's law)."""
    shares = 1 / np.arange(1, _WORDS + 1)
    cumulated: npt.NDArray[np.float64] = np.cumsum(shares / shares.sum())
    return cumulated


def _word(rank: int) -> str:
    return f"w{rank}x"
