"""The best live rows of one source for a query, with global weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from exec_nodes.base.columns import RowAddresses
from exec_nodes.text.postings.bm25 import Scores
from exec_nodes.text.postings.corpus import LiveText
from exec_nodes.text.postings.protocol import Live
from exec_nodes.text.scoring.evaluate import evaluate
from exec_nodes.text.scoring.resolve import Resolved, Words
from memwal_native import Postings, top_k

Ranked = tuple[RowAddresses, Scores]


def rank(
    query: Resolved, texts: Mapping[str, LiveText], matching: RowAddresses | None, k: int
) -> Ranked:
    """The (up to) `k` best rows by score, of equal ones the lower address first.

    `texts` has an entry for each column of the query. `matching` are the sorted addresses of rows
    that may be returned; None means all. They change no score.
    """
    allowed = {column: _allowed(text, matching) for column, text in texts.items()}
    if isinstance(query, Words) and _is_plain(query):
        return _best_by_words(query, texts[query.column], allowed[query.column], k)
    indexes = {column: text.text for column, text in texts.items()}
    live = {column: indexes[column].by_document(flags) for column, flags in allowed.items()}
    return _first(*evaluate(query, indexes, live, k), k)


def _allowed(text: LiveText, matching: RowAddresses | None) -> Live:
    if matching is None:
        return text.live
    flags = np.zeros(text.text.documents, np.bool_)
    flags[text.text.slots_of(matching)] = True
    return flags & text.live


def _is_plain(query: Words) -> bool:
    """Whether it is a sum over tokens, of which a row must hold any, all or some different ones."""
    alone = max(query.counts, default=1) == 1
    counted = query.required <= 1 or alone or query.required == sum(query.counts)
    spellings = max(map(len, query.words), default=0)
    return counted and bool(query.boost > 0) and spellings <= 1


def _best_by_words(query: Words, live: LiveText, allowed: Live, k: int) -> Ranked:
    required = max(1, min(query.required, len(query.words)))
    fixed, per_token = query.norms
    found: list[Ranked] = []
    for start, part in zip(live.text.starts, live.text.parts, strict=True):
        lists: list[Postings] = []
        weights: list[float] = []
        for word, count in zip(query.words, query.counts, strict=True):
            postings = part.postings(word[0].text) if word else None
            if postings is not None:
                lists.append(postings)
                weights.append(float(word[0].weight * np.float32(count) * query.boost))
        if len(lists) < required:
            continue
        best = top_k(
            lists,
            weights,
            part.lengths,
            allowed[start : start + len(part.lengths)].view(np.uint8),
            k=k,
            required=required,
            fixed=float(fixed),
            per_token=float(per_token),
            shortest=part.shortest,
        )
        rows = part.addresses[np.frombuffer(best[0], np.int32)]
        found.append((rows, np.frombuffer(best[1], np.float32)))
    addresses = np.concatenate([np.empty(0, np.uint64), *[rows for rows, _ in found]])
    scores = np.concatenate([np.empty(0, np.float32), *[worth for _, worth in found]])
    return _first(addresses, scores, k)


def _first(addresses: RowAddresses, scores: Scores, k: int) -> Ranked:
    order = np.lexsort((addresses, -scores))[:k]
    return addresses[order], scores[order]
