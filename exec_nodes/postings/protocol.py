"""The protocols that a full-text query uses: the texts of one column of one source, and the corpus.

Both are independent of a query. Document ids are a source's own, 0 to `documents` - 1; the corpus
has all live rows of a table (rules of correctness, 4: the ranking equals that of one index built
from the merged table).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.base.columns import RowAddresses

Documents = npt.NDArray[np.int32]
Frequencies = npt.NDArray[np.int32]
Lengths = npt.NDArray[np.int32]
Live = npt.NDArray[np.bool_]


class Vocabulary(Protocol):
    """The tokens of a column, as far as a query's words become tokens."""

    @property
    def analyzer(self) -> Hashable:
        """The tokenizer of the texts; equal ones give equal tokens."""

    def near(self, token: str, distance: int, prefix_length: int) -> set[str]:
        """The tokens of documents, and perhaps others, that are at most `distance` edits of
        characters (Levenshtein's) from `token` and begin as it does: with its first
        `prefix_length` characters, or all of them if it has fewer."""

    def query_words(self, text: str) -> Sequence[tuple[str, int]]:
        """`TextIndex.positions` of a query's text, kept."""


class TextIndex(Vocabulary, Protocol):
    """The texts of one column of one source; never changes. Safe to read from several threads.

    Stale rows are among the documents: the caller knows which ones are live.
    """

    @property
    def documents(self) -> int:
        """The number of document ids. Rows without any token may have one or not."""

    @property
    def addresses(self) -> RowAddresses:
        """The row's address in its source, by document id; ascending, uint64."""

    @property
    def lengths(self) -> Lengths:
        """The number of tokens by document id; 0 if the text is null, empty or stop words only."""

    def postings(self, token: str) -> tuple[Documents, Frequencies]:
        """The documents that hold a token, ascending, and how often each does (at least once)."""

    def positions(self, text: str) -> list[tuple[str, int]]:
        """The tokens of a text as the column's analyzer gives them, in order, repetitions kept,
        each with its position; stop words take one, and tokens of one position are spellings of
        one word."""

    def texts(self, documents: Documents) -> pa.Array:
        """The texts of some documents, in the order asked; read from the source."""


class CorpusStatistics(Protocol):
    """The statistics of BM25 for one column of all live rows that have at least one token.

    Exact: replaced and deleted rows are not counted, whatever source they are in.
    """

    @property
    def documents(self) -> int:
        """Live rows with at least one token."""

    @property
    def total_length(self) -> int:
        """Their tokens, repetitions counted."""

    def document_frequency(self, token: str) -> int:
        """The number of rows with a token."""


def shortest(lengths: Lengths) -> int:
    """The least length of a document with any token; 1 without documents."""
    texts = lengths[lengths > 0]
    return int(texts.min()) if len(texts) else 1
