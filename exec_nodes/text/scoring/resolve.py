"""Turns a query's tree into tokens with global weights, which every source evaluates alike.

Texts become tokens, fuzzy tokens become tokens of the live corpus, and tokens get their weight from
the statistics of the corpus. So the sources of one search never differ in their scores, and the
result does not depend on how rows are spread over them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, TypeAlias

import numpy as np

from exec_nodes.base.errors import InvalidCallError
from exec_nodes.postings.analyzer import automatic_distance, plain_tokens
from exec_nodes.postings.bm25 import (
    inverse_document_frequency,
    length_norms,
    norms_of,
    token_weight,
)
from exec_nodes.postings.protocol import CorpusStatistics, Vocabulary
from exec_nodes.text.query.tree import (
    Boolean,
    Boost,
    CombinedFields,
    Match,
    MultiMatch,
    Operator,
    Phrase,
    TextExpression,
)

Norms = tuple[np.float32, np.float32]


class Corpus(NamedTuple):
    """One column of a table: the statistics of its live rows, and its index in every source."""

    statistics: CorpusStatistics
    indexes: Sequence[Vocabulary]


class Token(NamedTuple):
    """A token, and its inverse document frequency."""

    text: str
    weight: np.float32


Word = tuple[
    Token, ...
]  # what one word of the query stands for: any of them; empty if no row has it


@dataclass(frozen=True, slots=True)
class Words:
    """A `Match`: rows that hold at least `required` of the words.

    Attributes:
        words: each different one once; none if more are required than there are.
        counts: how often the query has each.
        norms: see `bm25.length_norms`.
    """

    column: str
    words: tuple[Word, ...]
    counts: tuple[int, ...]
    required: int
    boost: np.float32
    norms: Norms


@dataclass(frozen=True, slots=True)
class Sequences:
    """A `Phrase`: rows of `words` that hold them in order. `order` are the words as they follow
    each other, `places` their positions."""

    words: Words
    order: tuple[Word, ...]
    places: tuple[int, ...]
    slop: int


@dataclass(frozen=True, slots=True)
class Fields:
    """A `CombinedFields`: rows that hold at least `required` of the tokens in any column."""

    columns: tuple[str, ...]
    weights: tuple[np.float32, ...]
    tokens: tuple[Token, ...]
    required: int
    norms: Norms


@dataclass(frozen=True, slots=True)
class Best:
    """A `MultiMatch`: the best part counts."""

    parts: tuple[Resolved, ...]


@dataclass(frozen=True, slots=True)
class Penalty:
    """A `Boost`."""

    positive: Resolved
    negative: Resolved
    factor: np.float32


@dataclass(frozen=True, slots=True)
class Clauses:
    """A `Boolean`; at least `required` of the `should` must match."""

    must: tuple[Resolved, ...]
    should: tuple[Resolved, ...]
    must_not: tuple[Resolved, ...]
    required: int


Resolved: TypeAlias = Words | Sequences | Fields | Best | Penalty | Clauses


def resolve(expression: TextExpression, corpora: Mapping[str, Corpus]) -> Resolved:
    """The expression over the corpora of its columns, which must all be there."""

    def inner(part: TextExpression) -> Resolved:
        return resolve(part, corpora)

    match expression:
        case Match():
            return _words(expression, corpora[expression.column])
        case Phrase():
            return _sequences(expression, corpora[expression.column])
        case CombinedFields():
            return _fields(expression, [corpora[column] for column in expression.columns])
        case MultiMatch():
            return Best(tuple(map(inner, expression.matches)))
        case Boost():
            factor = np.float32(expression.negative_boost)
            return Penalty(inner(expression.positive), inner(expression.negative), factor)
        case Boolean():
            clauses = (expression.must, expression.should, expression.must_not)
            must, should, must_not = (tuple(map(inner, clause)) for clause in clauses)
            return Clauses(must, should, must_not, expression.required)


def has_phrase(resolved: Resolved) -> bool:
    """Whether texts have to be read to know the rows that match."""
    return isinstance(resolved, Sequences) or any(map(has_phrase, parts_of(resolved)))


def has_penalty(resolved: Resolved) -> bool:
    """Whether a match can lower a score."""
    return isinstance(resolved, Penalty) or any(map(has_penalty, parts_of(resolved)))


def parts_of(resolved: Resolved) -> tuple[Resolved, ...]:
    """The parts of a node; a leaf has none."""
    match resolved:
        case Words() | Sequences() | Fields():
            return ()
        case Best():
            return resolved.parts
        case Penalty():
            return (resolved.positive, resolved.negative)
        case Clauses():
            return (*resolved.must, *resolved.should, *resolved.must_not)


def _words(query: Match, corpus: Corpus) -> Words:
    if query.fuzziness == 0:
        words = [
            _indexed_word(spellings, corpus) for _, spellings in _spellings(query.text, corpus)
        ]
    else:
        words = list(_fuzzy_words(query, corpus))
    required = len(words) if query.operator is Operator.AND else 1
    if query.minimum_should_match is not None:
        required = query.minimum_should_match
    return _counted(query.column, words, required, query.boost, corpus)


def _sequences(query: Phrase, corpus: Corpus) -> Sequences:
    spelled = _spellings(query.text, corpus)
    order = tuple(_indexed_word(spellings, corpus) for _, spellings in spelled)
    words = _counted(query.column, order, len(order), 1.0, corpus)
    return Sequences(words, order, tuple(place for place, _ in spelled), query.slop)


def _fields(query: CombinedFields, corpora: Sequence[Corpus]) -> Fields:
    if len({corpus.indexes[0].analyzer for corpus in corpora if corpus.indexes}) > 1:
        raise InvalidCallError(
            f"The columns {list(query.columns)} can't be combined, as their analyzers differ: give "
            f"their indexes the same parameters, or use multi_match."
        )
    words = corpora[0].indexes[0].query_words(query.text) if corpora[0].indexes else ()
    tokens = dict.fromkeys(token for token, _ in words)
    statistics = [corpus.statistics for corpus in corpora]
    weights = tuple(map(np.float32, query.weights or (1,) * len(corpora)))
    documents = max(column.documents for column in statistics)
    length = sum(
        weight * column.total_length for weight, column in zip(weights, statistics, strict=True)
    )
    weighted = []
    for token in tokens:
        holding = max(column.document_frequency(token) for column in statistics)
        if holding:
            weighted.append(Token(token, inverse_document_frequency(documents, holding)))
    required = len(tokens) if query.operator is Operator.AND else 1
    return Fields(
        query.columns, weights, tuple(weighted), required, norms_of(documents, float(length))
    )


def _spellings(text: str, corpus: Corpus) -> list[tuple[int, list[str]]]:
    """The words of a text: each one's position and its tokens, each once."""
    tokens = corpus.indexes[0].query_words(text) if corpus.indexes else ()
    words = groupby(tokens, key=lambda token: token[1])
    return [(place, list(dict.fromkeys(name for name, _ in group))) for place, group in words]


def _fuzzy_words(query: Match, corpus: Corpus) -> Iterator[Word]:
    """Each word of the text as the live tokens near it, while there are less than the query's
    `max_expansions` altogether."""
    remaining = query.max_expansions
    for token in plain_tokens(query.text):
        word = []
        for near in _near(token, query, corpus) if remaining else ():
            if corpus.statistics.document_frequency(near):
                word.append(Token(near, token_weight(corpus.statistics, near)))
                remaining -= 1
            if not remaining:
                break
        yield tuple(word)


def _near(token: str, query: Match, corpus: Corpus) -> list[str]:
    """The tokens of any source that a fuzzy token may stand for, in the order of characters."""
    distance = automatic_distance(token) if query.fuzziness is None else query.fuzziness
    words: set[str] = set()
    for index in corpus.indexes:
        words |= index.near(token, distance, query.prefix_length)
    return sorted(words)


def _indexed_word(tokens: Sequence[str], corpus: Corpus) -> Word:
    indexed = [token for token in tokens if corpus.statistics.document_frequency(token)]
    return tuple([Token(token, token_weight(corpus.statistics, token)) for token in indexed])


def _counted(
    column: str, words: Sequence[Word], required: int, boost: float, corpus: Corpus
) -> Words:
    counts = Counter(words if required <= len(words) else ())
    return Words(
        column,
        tuple(counts),
        tuple(counts.values()),
        required,
        np.float32(boost),
        length_norms(corpus.statistics),
    )
