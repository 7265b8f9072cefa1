"""The protocols of `postings.protocol` in the plainest way: dicts over texts in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from lance.lance import tokenize

from exec_nodes.postings.protocol import Documents, Frequencies
from exec_nodes.text.scoring.resolve import Corpus
from memwal_native import TokenList

Texts = Sequence[str | None]


class MemoryTexts:
    """A `TextIndex` over a list of texts. Row addresses have gaps, and empty texts no document,
    as in Lance's own index files."""

    def __init__(
        self, texts: Texts, parameters: Mapping[str, Any], addresses: Sequence[int] | None = None
    ) -> None:
        self.parameters = dict(parameters)
        self.analyzer = tuple(sorted(parameters.items()))
        numbers = range(len(texts)) if addresses is None else addresses
        pairs = [(n, text) for n, text in zip(numbers, texts, strict=True) if self._any(text)]
        self._texts = [text for _, text in pairs]
        self._counts = [Counter(self.tokenize(str(text))) for text in self._texts]
        self.addresses = np.array([number for number, _ in pairs], np.uint64)
        self.lengths = np.array([count.total() for count in self._counts], np.int32)
        self.documents = len(pairs)

    def _any(self, text: str | None) -> bool:
        return text is not None and bool(self.tokenize(text))

    def postings(self, token: str) -> tuple[Documents, Frequencies]:
        found = [(n, count[token]) for n, count in enumerate(self._counts) if token in count]
        documents = np.array([n for n, _ in found], np.int32)
        return documents, np.array([often for _, often in found], np.int32)

    def near(self, token: str, distance: int, prefix_length: int) -> set[str]:
        tokens = TokenList()
        tokens.extend([*{token for count in self._counts for token in count}])
        return set(tokens.near(token, distance, prefix_length))

    def tokenize(self, text: str) -> list[str]:
        return [token for token, _ in self.positions(text)]

    def query_words(self, text: str) -> list[tuple[str, int]]:
        return self.positions(text)

    def positions(self, text: str) -> list[tuple[str, int]]:
        return [(token.text, token.position) for token in tokenize(text, **self.parameters)]

    def texts(self, documents: Documents) -> pa.Array:
        return pa.array([self._texts[n] for n in documents], pa.string())


class MemoryStatistics:
    """`CorpusStatistics`, by counting."""

    def __init__(self, indexes: Sequence[MemoryTexts], live: Sequence[np.ndarray]) -> None:
        self._indexes, self._live = indexes, live
        pairs = list(zip(indexes, live, strict=True))
        self.documents = sum(int(flags.sum()) for _, flags in pairs)
        self.total_length = sum(int(index.lengths[flags].sum()) for index, flags in pairs)

    def document_frequency(self, token: str) -> int:
        pairs = zip(self._indexes, self._live, strict=True)
        return sum(int(flags[index.postings(token)[0]].sum()) for index, flags in pairs)


def corpus_of(indexes: Sequence[MemoryTexts], live: Sequence[np.ndarray]) -> Corpus:
    return Corpus(MemoryStatistics(indexes, live), indexes)
