"""The texts of a MemTable: for each column and analyzer its postings, as far as they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock

import pyarrow as pa

from exec_nodes.text.postings.analyzer import Analyzer
from exec_nodes.text.postings.memory_postings import GrowingText, TextView


class ColumnTexts:
    """Grows with the rows of one MemTable. Safe to use from several threads."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, Analyzer], GrowingText] = {}
        self._lock = Lock()

    def rows(self, column: str, analyzer: Analyzer) -> int:
        """How many of the first rows are tokenized."""
        with self._lock:
            text = self._texts.get((column, analyzer))
        return 0 if text is None else text.rows

    def view(
        self, column: str, analyzer: Analyzer, rows: int, texts: Callable[[int], Iterable[pa.Array]]
    ) -> TextView:
        """The postings of the first `rows` rows; those that are missing are tokenized now.

        `texts(n)` gives the texts of the rows from n on, up to `rows`.
        """
        with self._lock:
            text = self._texts.setdefault((column, analyzer), GrowingText(analyzer))
        text.catch_up(rows, texts)
        return text.view(rows)
