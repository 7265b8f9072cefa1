"""The best live rows of one source for a query.

Scores are those that one index over all live rows would give: weights and lengths are the whole
corpus's (`resolve`), and nothing else enters them, neither filters nor the rows of other sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from exec_nodes.base.columns import RowAddresses
from exec_nodes.postings.bm25 import Scores
from exec_nodes.postings.corpus import LiveText
from exec_nodes.postings.protocol import Live, TextIndex
from exec_nodes.text.scoring.evaluation import Evaluation
from exec_nodes.text.scoring.matches import Matches, Places, no_matches, sum_where
from exec_nodes.text.scoring.resolve import Resolved, Words, has_penalty, has_phrase
from memwal_native import Postings, top_k

Ranked = tuple[RowAddresses, Scores]

_FIRST_BLOCK: Final = 64
_FIRST_SORTED: Final = 4096


def rank(
    query: Resolved, texts: Mapping[str, LiveText], matching: RowAddresses | None, k: int
) -> Ranked:
    """The (up to) `k` best rows by score, and all as good as the last of these; equal rows by
    ascending address.

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
    """Whether it is a sum over tokens of which a row must have any, all or some different ones."""
    alone = max(query.counts, default=1) == 1
    counted = query.required <= 1 or alone or query.required == sum(query.counts)
    spellings = max(map(len, query.words), default=0)
    return counted and bool(query.boost > 0) and spellings <= 1


def _best_by_words(query: Words, live: LiveText, allowed: Live, k: int) -> Ranked:
    required = max(1, min(query.required, len(query.words)))
    fixed, per_token = query.norms
    ranked: list[Ranked] = []
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
        ranked.append((rows, np.frombuffer(best[1], np.float32)))
    addresses = np.concatenate([np.empty(0, np.uint64), *[rows for rows, _ in ranked]])
    scores = np.concatenate([np.empty(0, np.float32), *[worth for _, worth in ranked]])
    return _first(addresses, scores, k)


def _first(addresses: RowAddresses, scores: Scores, k: int) -> Ranked:
    order = np.lexsort((addresses, -scores))
    addresses, scores = addresses[order], scores[order]
    end = int((-scores).searchsorted(-scores[k - 1], "right")) if 0 < k < len(scores) else k
    return addresses[:end], scores[:end]


def evaluate(
    query: Resolved,
    indexes: Mapping[str, TextIndex],
    live: Mapping[str, Live],
    limit: int | None = None,
) -> tuple[RowAddresses, Scores]:
    """The rows of a source that match, by ascending address, and their scores.

    `indexes` and `live` (one flag a document: whether its row may be returned) have an entry for
    each column of the query. With a `limit`, rows may be left out that are worse than the first
    `limit` by score; it spares reading texts for phrases.
    """
    evaluation = Evaluation(indexes, live)
    if limit is None:
        matches = evaluation.matches(query)
    elif has_phrase(query) and not has_penalty(query):
        matches = _first_confirmed(query, evaluation, limit)
    else:
        matches = evaluation.matches(query)
        matches = matches.filter(matches.scores >= _least_of_best(matches.scores, limit))
    return evaluation.addresses_of(matches.rows), matches.scores


def _first_confirmed(query: Resolved, evaluation: Evaluation, limit: int) -> Matches:
    """At least the first `limit` rows of a query with phrases, and those as good as the last.

    A pass in which every phrase counts as matched finds all rows and scores none too low. Texts are
    read in the order of these scores, while a row may still be among the first.
    """
    hopeful = evaluation.matches(query, hopeful=True)
    confirmed = no_matches(hopeful.rows)
    for block, behind in _blocks(hopeful, max(_FIRST_BLOCK, 2 * limit)):
        exact = evaluation.matches(query, within=np.sort(hopeful.rows[block]))
        confirmed = sum_where((confirmed, exact), 1, None)
        if behind is None or _beyond(confirmed, hopeful, behind, limit):
            break
    return confirmed


def _blocks(hopeful: Matches, size: int) -> Iterator[tuple[Places, int | None]]:
    """The places of rows, the best first, in blocks that double; with each the first place behind
    it, None behind the last."""
    order = _best_first(hopeful, _FIRST_SORTED)
    start = 0
    while start < len(hopeful):
        if start + size >= len(order) < len(hopeful):
            order = _best_first(hopeful, len(hopeful))
        end = start + size
        yield order[start:end], int(order[end]) if end < len(order) else None
        start, size = end, 2 * size


def _best_first(matches: Matches, count: int) -> Places:
    """The places of at least `count` rows by score, highest first, and then by row."""
    best = np.flatnonzero(matches.scores >= _least_of_best(matches.scores, count))
    return best[np.lexsort((matches.rows[best], -matches.scores[best]))]


def _least_of_best(scores: Scores, count: int) -> np.float32:
    """The score that the first `count` reach."""
    if not count:
        return np.float32(np.inf)
    if len(scores) <= count:
        return np.float32(-np.inf)
    place = len(scores) - count
    return np.float32(np.partition(scores, place)[place])


def _beyond(confirmed: Matches, hopeful: Matches, behind: int, limit: int) -> bool:
    """Whether the first `limit` rows are final: the next ones can only rank behind them."""
    if not limit or len(confirmed) < limit:
        return not limit
    return bool(_least_of_best(confirmed.scores, limit) > hopeful.scores[behind])
