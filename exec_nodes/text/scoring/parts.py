"""Statistics of parts of a corpus, so that several processes can rank one table.

Each part is counted where its rows are read; the sums weigh a query as one process does that reads
all of them (rules of correctness, 4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from exec_nodes.postings.analyzer import Analyzer
from exec_nodes.postings.corpus import LiveCorpus
from exec_nodes.postings.protocol import Vocabulary
from exec_nodes.text.query.tree import TextExpression
from exec_nodes.text.scoring.query_corpus import QueryCorpus
from exec_nodes.text.scoring.resolve import Corpus, Resolved, resolve

_Near = tuple[str, int, int]


@dataclass(frozen=True)
class CorpusPart:
    """What a query asks of one column of a part of a table; it pickles.

    Attributes:
        documents: live rows with at least one token.
        total_length: their tokens.
        frequencies: the number of these rows with a token, for the tokens of the query.
        near: the tokens that a fuzzy token may stand for.
    """

    documents: int = 0
    total_length: int = 0
    frequencies: Counter[str] = field(default_factory=Counter)
    near: dict[_Near, set[str]] = field(default_factory=dict)

    def document_frequency(self, token: str) -> int:
        """See `CorpusStatistics`."""
        return self.frequencies[token]


def count_part(corpus: QueryCorpus) -> dict[str, CorpusPart]:
    """The statistics of a plan's texts, by column.

    The fuzzy tokens that count are the first ones in the order of characters. One that is among
    the first of the whole table is among the first of each part that has it.
    """
    parts, corpora = {}, {}
    for column, live in corpus.live.items():
        parts[column] = part = CorpusPart(live.documents, live.total_length)
        indexes = [_Counted(text.text, part) for text in live.texts]
        corpora[column] = Corpus(_CountedStatistics(live, part), indexes)
    resolve(corpus.query, corpora)
    return parts


def weigh(
    query: TextExpression,
    analyzers: Mapping[str, Analyzer],
    parts: Sequence[Mapping[str, CorpusPart]],
) -> Resolved:
    """The query with the weights of all parts together. Raises as `resolve` does."""
    corpora = {}
    for column, analyzer in analyzers.items():
        whole = _sum([part[column] for part in parts])
        corpora[column] = Corpus(whole, [_Known(analyzer, whole)])
    return resolve(query, corpora)


def _sum(parts: Sequence[CorpusPart]) -> CorpusPart:
    whole = CorpusPart(sum(p.documents for p in parts), sum(p.total_length for p in parts))
    for part in parts:
        whole.frequencies.update(part.frequencies)
        for token, words in part.near.items():
            whole.near.setdefault(token, set()).update(words)
    return whole


class _CountedStatistics:
    """Notes in a part what is asked of its corpus."""

    def __init__(self, live: LiveCorpus, part: CorpusPart) -> None:
        self.documents, self.total_length = live.documents, live.total_length
        self._live = live
        self._part = part

    def document_frequency(self, token: str) -> int:
        frequency = self._live.document_frequency(token)
        self._part.frequencies[token] = frequency
        return frequency


class _Counted:
    """Notes in a part which tokens of a source are near others."""

    def __init__(self, text: Vocabulary, part: CorpusPart) -> None:
        self.analyzer, self.query_words = text.analyzer, text.query_words
        self._text = text
        self._part = part

    def near(self, token: str, distance: int, prefix_length: int) -> set[str]:
        words = self._text.near(token, distance, prefix_length)
        self._part.near.setdefault((token, distance, prefix_length), set()).update(words)
        return words


class _Known:
    """The tokens that the parts of a corpus have."""

    def __init__(self, analyzer: Analyzer, whole: CorpusPart) -> None:
        self.analyzer, self.query_words = analyzer, analyzer.query_words
        self._whole = whole

    def near(self, token: str, distance: int, prefix_length: int) -> set[str]:
        return self._whole.near.get((token, distance, prefix_length), set())
