"""A resolved query over the texts of one source, node by node; phrases and fields below."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from exec_nodes.base.columns import RowAddresses
from exec_nodes.postings.bm25 import Scores, token_scores
from exec_nodes.postings.protocol import Documents, Frequencies, Live, TextIndex
from exec_nodes.text.scoring.matches import (
    Flags,
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
from exec_nodes.text.scoring.resolve import (
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
    has_phrase,
)

_NOTHING: Final = Matches(np.empty(0, np.int32), np.empty(0, np.float32))

Spellings = frozenset[str]


class Evaluation:
    """One query over one source; posting lists are fetched once.

    Rows are document ids where the query has one column, else row addresses.
    """

    def __init__(self, indexes: Mapping[str, TextIndex], live: Mapping[str, Live]) -> None:
        self._columns = {column: _Column(index, live[column]) for column, index in indexes.items()}
        self._indexes, self._live = indexes, live

    def matches(
        self, query: Resolved, *, hopeful: bool = False, within: Rows | None = None
    ) -> Matches:
        """The live matching rows, or those among `within`. With `hopeful` every phrase counts as
        matched, which finds all rows and scores none too low unless a match lowers a score.
        """
        return _Pass(self._columns, self._indexes, self._live, hopeful, within).of(query)

    def addresses_of(self, rows: Rows) -> RowAddresses:
        """The row addresses of rows."""
        if len(self._indexes) > 1:
            return rows.astype(np.uint64, copy=False)
        (index,) = self._indexes.values()
        return index.addresses[rows]


class _Column:
    """The texts of one column, and those posting lists that were asked for."""

    def __init__(self, index: TextIndex, live: Live) -> None:
        self.index = index
        self.live = live
        self._postings: dict[str, tuple[Documents, Frequencies]] = {}

    def postings(self, token: str) -> tuple[Documents, Frequencies]:
        cached = self._postings.get(token)
        if cached is None:
            cached = self._postings[token] = self.index.postings(token)
        return cached

    def holding(self, word: Word) -> Rows:
        """The documents that hold any token of a word."""
        documents = [self.postings(token.text)[0] for token in word]
        if len(documents) == 1:
            return documents[0]
        return np.unique(np.concatenate([np.empty(0, np.int32), *documents]))

    def scored(self, word: Word, norms: Norms, within: Rows | None) -> Matches:
        """The live documents that hold any token of a word, each with the sum of their scores."""
        parts = [self._token_scored(token, norms, within) for token in word]
        return sum_where(parts, 1, self.index.documents) if parts else _NOTHING

    def _token_scored(self, token: Token, norms: Norms, within: Rows | None) -> Matches:
        documents, frequencies = self.postings(token.text)
        if within is None:
            keep = self.live[documents]
            documents, frequencies = documents[keep], frequencies[keep]
        else:
            places, present = locate(documents, within, self.index.documents)
            documents, frequencies = within[present], frequencies[places[present]]
        scores = token_scores(frequencies, self.index.lengths[documents], token.weight, norms)
        return Matches(documents, scores)


@dataclass(frozen=True, slots=True)
class _Pass:
    """One pass over the tree of a query, see `Evaluation.matches`."""

    columns: Mapping[str, _Column]
    indexes: Mapping[str, TextIndex]
    live: Mapping[str, Live]
    hopeful: bool
    within: Rows | None

    @property
    def size(self) -> int | None:
        """The bound of all row numbers, if arrays of that size are worth it."""
        documents = [index.documents for index in self.indexes.values()]
        return documents[0] if len(documents) == 1 else None

    def of(self, query: Resolved) -> Matches:
        """The rows that match a query or a part of it."""
        match query:
            case Words():
                return self._rows(query.column, self._words(query))
            case Sequences():
                return self._rows(query.words.column, self._sequences(query))
            case Fields():
                return self._only(field_matches(query, self.indexes, self.live))
            case Best():
                return best_of([self.of(part) for part in query.parts], self.size)
            case Penalty():
                negative = self.of(query.negative).times(-query.factor)
                return added(self.of(query.positive), [negative], 0, self.size)
            case Clauses():
                return self._clauses(query)

    def _clauses(self, query: Clauses) -> Matches:
        should = [self.of(part) for part in query.should]
        if query.must:
            must = [self.of(part) for part in query.must]
            matches = sum_where(must, len(must), self.size)
            matches = added(matches, should, query.required, self.size)
        elif len(should) < query.required:
            return no_matches(should[0].rows)
        else:
            matches = sum_where(should, query.required, self.size)
        for part in query.must_not:
            if not (self.hopeful and has_phrase(part)):
                matches = without(matches, self.of(part), self.size)
        return matches

    def _sequences(self, query: Sequences) -> Matches:
        matches = self._words(query.words)
        if self.hopeful or len(query.order) == 1 or not len(matches):
            return matches
        spellings = [frozenset(token.text for token in word) for word in query.order]
        index = self.indexes[query.words.column]
        return matches.filter(
            holding_phrase(index, matches.rows, spellings, query.places, query.slop)
        )

    def _words(self, query: Words) -> Matches:
        """The matches, by document id."""
        if not query.words:
            return _NOTHING
        column = self.columns[query.column]
        within = self._documents(query.column)
        if within is None and query.required == sum(query.counts) > 1:
            # Few documents hold every word: no other one needs a score.
            within = common_rows(list(map(column.holding, query.words)), column.index.documents)
            within = within[column.live[within]]
        parts = [
            column.scored(word, query.norms, within).times(count)
            for word, count in zip(query.words, query.counts, strict=True)
        ]
        matches = sum_where(parts, query.required, column.index.documents, query.counts)
        return matches.times(query.boost)

    def _documents(self, column: str) -> Documents | None:
        """The documents of a column that the pass is about; None for all."""
        if self.within is None or self.size is not None:
            return self.within
        places, present = locate(self.indexes[column].addresses, self.within, None)
        return places[present].astype(np.int32)

    def _rows(self, column: str, matches: Matches) -> Matches:
        if self.size is not None:
            return matches
        return Matches(self.indexes[column].addresses[matches.rows], matches.scores)

    def _only(self, matches: Matches) -> Matches:
        if self.within is None:
            return matches
        return matches.filter(locate(self.within, matches.rows, None)[1])


def holding_phrase(
    index: TextIndex,
    documents: Documents,
    words: Sequence[Spellings],
    places: Sequence[int],
    slop: int,
) -> Flags:
    """One flag a document: whether its text has each of `words` (any of its spellings), each at
    least as far behind the one before as `places` says, and at most `slop` farther.

    The texts are read and tokenized: give the documents that hold all the words.
    """
    steps = [after - before for before, after in pairwise(places)]
    texts = index.texts(documents).to_pylist()
    matches = [_holds(index.positions(text), words, steps, slop) for text in texts]
    return np.array(matches, np.bool_)


def _holds(
    tokens: Sequence[tuple[str, int]], words: Sequence[Spellings], steps: Sequence[int], slop: int
) -> bool:
    positions: list[list[int]] = [
        [place for token, place in tokens if token in spellings] for spellings in words
    ]
    ends = positions[0]
    for step, candidates in zip(steps, positions[1:], strict=True):
        ends = [place for place in candidates if _reached(place - step, ends, slop)]
    return bool(ends)


def _reached(place: int, ends: Sequence[int], slop: int) -> bool:
    """Whether some end lies at the place or at most `slop` before it."""
    behind = bisect_right(ends, place)
    return behind > 0 and ends[behind - 1] >= place - slop


def field_matches(
    fields: Fields, indexes: Mapping[str, TextIndex], live: Mapping[str, Live]
) -> Matches:
    """The live rows of a source that hold enough of the tokens, by row address."""
    parts = []
    for token in fields.tokens:
        frequencies = _frequencies(token, fields, indexes, live)
        lengths = _lengths(frequencies.rows, fields, indexes)
        scores = token_scores(frequencies.scores, lengths, token.weight, fields.norms)
        parts.append(Matches(frequencies.rows, scores))
    if len(parts) < fields.required or not parts:
        return no_matches(indexes[fields.columns[0]].addresses)
    return sum_where(parts, fields.required, None)


def _frequencies(
    token: Token, fields: Fields, indexes: Mapping[str, TextIndex], live: Mapping[str, Live]
) -> Matches:
    """The rows that hold a token in some column, with its weighted frequency as the score."""
    parts = []
    for column, weight in zip(fields.columns, fields.weights, strict=True):
        documents, frequencies = indexes[column].postings(token.text)
        rows = indexes[column].addresses[documents]
        matches = Matches(rows, frequencies.astype(np.float32) * weight)
        parts.append(matches.filter(live[column][documents]))
    return sum_where(parts, 1, None)


def _lengths(rows: Rows, fields: Fields, indexes: Mapping[str, TextIndex]) -> Scores:
    """The weighted length of each row; a column whose index has no such row adds nothing."""
    lengths = np.zeros(len(rows), np.float32)
    for column, weight in zip(fields.columns, fields.weights, strict=True):
        documents, present = locate(indexes[column].addresses, rows, None)
        own = indexes[column].lengths[documents[present]]
        lengths[present] += weight * own.astype(np.float32)
    return lengths
