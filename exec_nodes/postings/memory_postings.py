"""Postings in memory that grow with their texts: of a MemTable, or of rows without an index.

Rows are numbered in the order of appending and are the documents; rows appended later never change
an answer about the first rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.postings.analyzer import Analyzer
from exec_nodes.postings.protocol import Documents, Frequencies, Lengths
from memwal_native import TokenList

_LEVELS = 3
_LARGE_SEGMENT = 100_000
_ROW_BITS = np.int64(32)
_FIRST_CAPACITY = 1024


class _Numbers(dict[str, int]):
    """Numbers tokens in the order in which they are first met."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = TokenList()

    def __missing__(self, token: str) -> int:
        number = self[token] = len(self)
        return number

    def of(self, tokens: list[str]) -> npt.NDArray[np.int64]:
        """The numbers of tokens."""
        numbers = np.fromiter(map(self.__getitem__, tokens), np.int64, len(tokens))
        self.tokens.extend([*islice(reversed(self), len(self) - len(self.tokens))])
        return numbers


@dataclass(frozen=True, slots=True)
class _Segment:
    """Postings of some neighbouring rows: `keys` are token number << 32 | row, ascending."""

    keys: npt.NDArray[np.int64]
    frequencies: Frequencies

    def of(self, number: int) -> slice:
        """The location of a token's postings."""
        bounds = np.array([number, number + 1], np.int64) << _ROW_BITS
        start, end = self.keys.searchsorted(bounds)
        return slice(int(start), int(end))


class GrowingText:
    """The texts of one column as postings; append-only. Safe to use from several threads."""

    def __init__(self, analyzer: Analyzer, fan_in: int = 16) -> None:
        """`fan_in` neighbours of one level become one segment of the next, as the batches of a
        MemTable do."""
        self.analyzer = analyzer
        self._fan_in = fan_in
        self._numbers = _Numbers()
        self._segments: list[_Segment] = []
        self._levels: list[int] = []
        self._lengths: Lengths = np.zeros(_FIRST_CAPACITY, np.int32)
        self._rows = 0
        self._lock = Lock()

    @property
    def rows(self) -> int:
        """Rows appended."""
        return self._rows

    @property
    def nbytes(self) -> int:
        """Bytes held; an estimate."""
        postings = sum(s.keys.nbytes + s.frequencies.nbytes for s in self._segments)
        tokens = 150 * len(self._numbers) + self._numbers.tokens.nbytes
        return postings + int(self._lengths.nbytes) + tokens

    def catch_up(self, rows: int, texts: Callable[[int], Iterable[pa.Array]]) -> None:
        """Have at least the first `rows` rows; `texts(n)` gives the texts from row n on."""
        if self._rows >= rows:
            return
        with self._lock:
            if self._rows < rows:
                for part in texts(self._rows):
                    self._append(part)

    def append(self, texts: pa.Array) -> None:
        """Add the texts of the next rows."""
        with self._lock:
            self._append(texts)

    def view(self, rows: int) -> TextView:
        """The postings of the first `rows` rows, which have been appended."""
        with self._lock:
            return TextView(self._numbers, tuple(self._segments), self._lengths[:rows])

    def _append(self, texts: pa.Array) -> None:
        tokens, lengths = self.analyzer.tokens_of(texts)
        numbers = self._numbers.of(tokens)
        start, end = self._rows, self._rows + len(lengths)
        self._reserve(end)
        self._lengths[start:end] = lengths
        if tokens:
            rows = np.repeat(np.arange(start, end, dtype=np.int64), lengths)
            keys, counts = _counted((numbers << _ROW_BITS) | rows)
            self._segments = [*self._segments, _Segment(keys, counts)]
            self._levels.append(_LEVELS - 1 if len(keys) >= _LARGE_SEGMENT else 0)
            self._consolidate()
        self._rows = end  # only now may others go on without the lock

    def _consolidate(self) -> None:
        while (
            len(self._levels) >= self._fan_in
            and (level := self._levels[-1]) < _LEVELS
            and self._levels[-self._fan_in :] == [level] * self._fan_in
        ):
            merged = _merged(self._segments[-self._fan_in :])
            # A new list: views hold the old one.
            self._segments = [*self._segments[: -self._fan_in], merged]
            self._levels[-self._fan_in :] = [level + 1]

    def _reserve(self, rows: int) -> None:
        if rows > len(self._lengths):
            grown = np.zeros(max(rows, 2 * len(self._lengths)), np.int32)
            grown[: self._rows] = self._lengths[: self._rows]
            self._lengths = grown


@dataclass(frozen=True, slots=True)
class TextView:
    """The first rows of a GrowingText; never changes."""

    _numbers: _Numbers
    _segments: tuple[_Segment, ...]
    lengths: Lengths

    def postings(self, token: str) -> tuple[Documents, Frequencies]:
        number = self._numbers.get(token)
        if number is None:
            return np.empty(0, np.int32), np.empty(0, np.int32)
        postings = [(segment, segment.of(number)) for segment in self._segments]
        rows = [np.empty(0, np.int32), *(_rows(s.keys[at]) for s, at in postings)]
        often = [np.empty(0, np.int32), *(s.frequencies[at] for s, at in postings)]
        documents, frequencies = np.concatenate(rows), np.concatenate(often)
        # Segments may have grown over the end by consolidation.
        end = int(documents.searchsorted(len(self.lengths)))
        return documents[:end], frequencies[:end]

    def near(self, token: str, distance: int, prefix_length: int) -> list[str]:
        return self._numbers.tokens.near(token, distance, prefix_length)


def _rows(keys: npt.NDArray[np.int64]) -> Documents:
    return (keys & 0xFFFF_FFFF).astype(np.int32)


def _counted(keys: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], Frequencies]:
    """The distinct keys, ascending, and how often each is there."""
    # Sorted first: numpy's own `unique` hashes, which takes several times as long.
    keys.sort()
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    return keys[starts], np.diff(np.append(starts, len(keys))).astype(np.int32)


def _merged(segments: list[_Segment]) -> _Segment:
    keys = np.concatenate([segment.keys for segment in segments])
    order = np.argsort(keys, kind="stable")
    often = np.concatenate([segment.frequencies for segment in segments])
    return _Segment(keys[order], often[order])


class ColumnTexts:
    """Grows with the rows of one MemTable. Safe to use from several threads."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, Analyzer], GrowingText] = {}
        self._lock = Lock()

    def rows(self, column: str, analyzer: Analyzer) -> int:
        """The number of first rows that are tokenized."""
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
