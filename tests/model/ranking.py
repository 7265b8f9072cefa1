"""What a full-text search should find: a fresh Lance index over the rows, and BM25 by bm25s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import bm25s
import lance
import numpy as np
import pyarrow as pa
from lance.lance import tokenize
from lance.query import FullTextQuery

TOLERANCE = 3e-6
K1 = 1.2
B = 0.75

Ranking = dict[int, float]  # score by row id, the best first

# Exact lengths and positions, see `block_size` in the documentation of Lance's INVERTED index.
EXACT = {"with_position": True, "block_size": 128}


class LanceRanking:
    """One table of its own with an INVERTED index a text column; nothing stale in it."""

    def __init__(self, rows: pa.Table, parameters: Mapping[str, Mapping[str, Any]]) -> None:
        """`rows` has an `id` column; `parameters` are those of each text column's analyzer."""
        self._dataset = lance.write_dataset(rows, f"memory://{uuid4().hex}")
        for column, analyzer in parameters.items():
            version = 3 if analyzer.get("analyzer") == "code" else 2
            self._dataset.create_scalar_index(
                column, "INVERTED", format_version=version, **EXACT, **analyzer
            )

    def search(self, query: FullTextQuery, k: int | None = None) -> Ranking:
        """The best k rows, or all that match."""
        limit = max(self._dataset.count_rows(), 1) if k is None else k
        columns = ["id", "_score"]
        found = self._dataset.to_table(columns=columns, full_text_query=query, limit=limit)
        return dict(zip(found["id"].to_pylist(), found["_score"].to_pylist(), strict=True))


def bm25s_ranking(
    ids: Sequence[int], texts: Sequence[str | None], query: str, analyzer: Mapping[str, Any]
) -> Ranking:
    """Every row that holds a token of the query, by an implementation that is not Lance's.

    Documents without any token are not in the corpus; a token that the query repeats counts again.
    """
    tokens = [[] if text is None else words(text, analyzer) for text in texts]
    kept = [(number, own) for number, own in zip(ids, tokens, strict=True) if own]
    asked = words(query, analyzer)
    known = {token for _, own in kept for token in own}
    asked = [token for token in asked if token in known]
    if not asked:
        return {}
    index = bm25s.BM25(method="lucene", k1=K1, b=B)
    index.index([own for _, own in kept], show_progress=False)
    scores = sum(index.get_scores([token]) for token in asked) * (K1 + 1)
    return {kept[place][0]: float(scores[place]) for place in np.flatnonzero(scores)}


def words(text: str, analyzer: Mapping[str, Any]) -> list[str]:
    """The tokens that Lance makes of a text."""
    return [token.text for token in tokenize(text, **analyzer)]


def check_ranking(
    found: Ranking, expected: Ranking, k: int | None = None, tolerance: float = TOLERANCE
) -> None:
    """Assert that a search found the expected rows, best first, with the expected scores.

    With a k, `expected` has all rows that match: those above the k-th score must be found; which
    of those that share it is left open.
    """
    scores = list(found.values())
    assert scores == sorted(scores, reverse=True), f"not the best first: {found}"
    wanted = sorted(expected.values(), reverse=True)[:k]
    assert len(found) == len(wanted), f"{len(found)} rows, expected {len(wanted)}: {found}"
    for number, score in found.items():
        assert number in expected, f"row {number} does not match"
        assert abs(score - expected[number]) <= tolerance, (
            f"row {number}: score {score}, expected {expected[number]}"
        )
    if wanted:
        above = {n for n, score in expected.items() if score > wanted[-1] + tolerance}
        assert above <= found.keys(), f"missing: {above - found.keys()}"
