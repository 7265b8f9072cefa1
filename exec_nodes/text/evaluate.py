"""What of a source matches a query, and how well: a resolved query over the texts of one source.

Scores are those that one index over all live rows would give: weights and lengths are the whole
corpus's (`resolve`), and nothing else enters them, neither filters nor the rows of other sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from exec_nodes.sources.source import RowAddresses
from exec_nodes.text.bm25 import Scores, token_scores
from exec_nodes.text.fields import field_matches
from exec_nodes.text.index import Live, TextIndex
from exec_nodes.text.matches import (
    Matches,
    Rows,
    added,
    best_of,
    common_rows,
    locate,
    no_matches,
    sum_where,
    without,
)
from exec_nodes.text.phrase import holding_phrase
from exec_nodes.text.resolve import (
    Best,
    Clauses,
    Fields,
    Norms,
    Penalty,
    Resolved,
    Sequences,
    Token,
    Word,
    Words,
    has_penalty,
    has_phrase,
)

_FIRST_BLOCK: Final = 64
_NOTHING: Final = Matches(np.empty(0, np.int32), np.empty(0, np.float32))


def evaluate(
    query: Resolved,
    indexes: Mapping[str, TextIndex],
    live: Mapping[str, Live],
    limit: int | None = None,
) -> tuple[RowAddresses, Scores]:
    """The rows of a source that match, by ascending address, and their scores.

    `indexes` and `live` (one flag a document: whether its row may be returned) have an entry for
    each column of the query. With a `limit`, rows may be left out that are not among the first
    `limit` by score, highest first, and then by address; it spares reading texts for phrases.
    """
    matches = _matches(query, indexes, live, limit)
    if len(indexes) > 1:
        return matches.rows.astype(np.uint64, copy=False), matches.scores
    (index,) = indexes.values()
    return index.addresses[matches.rows], matches.scores


def _matches(
    query: Resolved,
    indexes: Mapping[str, TextIndex],
    live: Mapping[str, Live],
    limit: int | None,
) -> Matches:
    if limit is None or not has_phrase(query) or has_penalty(query):
        return _Evaluation(indexes, live).of(query)
    # As if every phrase held: no row's score is higher than that, and texts need to be read only
    # while a row may still be among the first.
    hopeful = _Evaluation(indexes, live, hopeful=True).of(query)
    order = np.lexsort((hopeful.rows, -hopeful.scores))
    found = no_matches(hopeful.rows)
    start, size = 0, max(_FIRST_BLOCK, 2 * limit)
    while start < len(order):
        block = np.sort(hopeful.rows[order[start : start + size]])
        exact = _Evaluation(indexes, _only(block, indexes, live)).of(query)
        found = sum_where((found, exact), 1, None)
        start, size = start + size, 2 * size
        if start < len(order) and _beyond(found, hopeful, int(order[start]), limit):
            break
    return found


def _beyond(found: Matches, hopeful: Matches, place: int, limit: int) -> bool:
    """Whether the first `limit` are found: what comes next is behind them at best."""
    if len(found) < limit:
        return False
    if not limit:
        return True
    last = np.lexsort((found.rows, -found.scores))[limit - 1]
    mine, next_one = found.scores[last], hopeful.scores[place]
    return bool(mine > next_one or (mine == next_one and found.rows[last] < hopeful.rows[place]))


def _only(
    rows: Rows, indexes: Mapping[str, TextIndex], live: Mapping[str, Live]
) -> dict[str, Live]:
    """`live` without the documents of other rows."""
    chosen = {}
    for column, index in indexes.items():
        documents = rows
        if len(indexes) > 1:
            places, found = locate(index.addresses, rows, None)
            documents = places[found]
        flags = np.zeros(index.documents, np.bool_)
        flags[documents] = live[column][documents]
        chosen[column] = flags
    return chosen


class _Evaluation:
    """One pass over a query. Rows are document ids where there is one column, else addresses.

    A hopeful one takes every phrase for held, so that it finds all rows and scores none too low.
    """

    def __init__(
        self, indexes: Mapping[str, TextIndex], live: Mapping[str, Live], *, hopeful: bool = False
    ) -> None:
        self._indexes = indexes
        self._live = live
        self._hopeful = hopeful
        documents = [index.documents for index in indexes.values()]
        self._size = documents[0] if len(documents) == 1 else None

    def of(self, query: Resolved) -> Matches:
        """The rows that match a query or a part of it."""
        match query:
            case Words():
                return self._rows(query.column, self._words(query))
            case Sequences():
                return self._rows(query.words.column, self._sequences(query))
            case Fields():
                return field_matches(query, self._indexes, self._live)
            case Best():
                return best_of([self.of(part) for part in query.parts], self._size)
            case Penalty():
                negative = self.of(query.negative).times(-query.factor)
                return added(self.of(query.positive), [negative], 0, self._size)
            case Clauses():
                return self._clauses(query)

    def _clauses(self, query: Clauses) -> Matches:
        should = [self.of(part) for part in query.should]
        if query.must:
            must = [self.of(part) for part in query.must]
            matches = sum_where(must, len(must), self._size)
            matches = added(matches, should, query.required, self._size)
        elif len(should) < query.required:
            return no_matches(should[0].rows)
        else:
            matches = sum_where(should, query.required, self._size)
        for part in query.must_not:
            if not (self._hopeful and has_phrase(part)):
                matches = without(matches, self.of(part), self._size)
        return matches

    def _rows(self, column: str, matches: Matches) -> Matches:
        if self._size is not None:
            return matches
        return Matches(self._indexes[column].addresses[matches.rows], matches.scores)

    def _sequences(self, query: Sequences) -> Matches:
        matches = self._words(query.words)
        if self._hopeful or len(query.order) < 2 or not len(matches):
            return matches
        spellings = [frozenset(token.text for token in word) for word in query.order]
        index = self._indexes[query.words.column]
        return matches.filter(
            holding_phrase(index, matches.rows, spellings, query.places, query.slop)
        )

    def _words(self, query: Words) -> Matches:
        """By document id."""
        if not query.words:
            return _NOTHING
        index, live = self._indexes[query.column], self._live[query.column]
        within = None
        if query.required == sum(query.counts) > 1:
            within = common_rows([_holding(index, word) for word in query.words], index.documents)
            within = within[live[within]]
        parts = [
            _scored(index, live, word, query.norms, within).times(count)
            for word, count in zip(query.words, query.counts, strict=True)
        ]
        matches = sum_where(parts, query.required, index.documents, query.counts)
        return matches.times(query.boost)


def _holding(index: TextIndex, word: Word) -> Rows:
    """The documents that hold any token of a word."""
    held = [index.postings(token.text)[0] for token in word]
    if len(held) == 1:
        return held[0]
    return np.unique(np.concatenate([np.empty(0, np.int32), *held]))


def _scored(index: TextIndex, live: Live, word: Word, norms: Norms, within: Rows | None) -> Matches:
    """The live documents that hold any token of a word, each with the tokens' sum of scores."""
    parts = [_token_scored(index, live, token, norms, within) for token in word]
    return sum_where(parts, 1, index.documents) if parts else _NOTHING


def _token_scored(
    index: TextIndex, live: Live, token: Token, norms: Norms, within: Rows | None
) -> Matches:
    documents, frequencies = index.postings(token.text)
    if within is None:
        keep = live[documents]
        documents, frequencies = documents[keep], frequencies[keep]
    else:
        places, found = locate(documents, within, index.documents)
        documents, frequencies = within[found], frequencies[places[found]]
    scores = token_scores(frequencies, index.lengths[documents], token.weight, norms)
    return Matches(documents, scores)
