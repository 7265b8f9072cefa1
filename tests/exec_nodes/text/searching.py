"""A search over sources in memory, with the statistics of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exec_nodes.text.query.tree import TextExpression, columns_of
from exec_nodes.text.scoring.rank import evaluate
from exec_nodes.text.scoring.resolve import resolve
from tests.exec_nodes.text.memory_texts import MemoryTexts, Texts, corpus_of
from tests.model.ranking import Ranking

Source = Mapping[str, MemoryTexts]


def sources_of(
    texts: Mapping[str, Texts], parts: Sequence[int], analyzer: Mapping[str, Any]
) -> list[Source]:
    """Row n of the columns goes into the source `parts[n]`, under the address n."""
    sources = []
    for part in sorted(set(parts)) or [0]:
        numbers = [number for number, own in enumerate(parts) if own == part]
        sources.append(
            {
                column: MemoryTexts([values[n] for n in numbers], analyzer, numbers)
                for column, values in texts.items()
            }
        )
    return sources


def search(
    expression: TextExpression,
    sources: Sequence[Source],
    k: int | None = None,
    dead: Sequence[int] = (),
) -> Ranking:
    """The best k live rows of all sources, or all; `dead` are addresses of stale rows."""
    columns = columns_of(expression)
    gone = np.array(dead, np.uint64)
    live = [
        {column: ~np.isin(source[column].addresses, gone) for column in columns}
        for source in sources
    ]
    corpora = {
        column: corpus_of([s[column] for s in sources], [flags[column] for flags in live])
        for column in columns
    }
    query = resolve(expression, corpora)
    found: list[tuple[int, float]] = []
    for source, flags in zip(sources, live, strict=True):
        indexes = {column: source[column] for column in columns}
        addresses, scores = evaluate(query, indexes, flags, k)
        assert scores.dtype == np.float32
        assert (np.diff(addresses.astype(np.int64)) > 0).all()
        found += zip(addresses.tolist(), scores.tolist(), strict=True)
    return dict(sorted(found, key=lambda row: (-row[1], row[0]))[:k])
