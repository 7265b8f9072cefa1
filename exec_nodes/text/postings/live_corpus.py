"""One column of all live rows of a table: the statistics that BM25 needs, over all sources."""

from __future__ import annotations

from collections.abc import Sequence

from exec_nodes.text.postings.corpus import LiveText


class LiveCorpus:
    """Sums up what the sources know of their own live rows (`CorpusStatistics`)."""

    def __init__(self, texts: Sequence[LiveText]) -> None:
        self.texts = tuple(texts)
        self.documents = sum([text.documents for text in texts])
        self.total_length = sum([text.total_length for text in texts])
        self._frequencies: dict[str, int] = {}

    def document_frequency(self, token: str) -> int:
        """See `CorpusStatistics`."""
        found = self._frequencies.get(token)
        if found is None:
            found = sum([text.document_frequency(token) for text in self.texts])
            self._frequencies[token] = found
        return found
