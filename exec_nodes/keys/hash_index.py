"""The primary key hash index of a MemTable: where the versions of a key are."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from itertools import repeat
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from exec_nodes.keys.keys import KeyColumn, is_integral, key_values, plain

NEVER = np.iinfo(np.int64).max
_FIRST_CAPACITY = 1024
# A thousand keys are indexed in 0.5 ms, or in half of that right after others, and compared with
# one in 4 us: by so many lookups, while they came in so few pieces.
_MOST_COMPARED = 64
_MOST_PIECES = 16

Positions = npt.NDArray[np.int64]


class _Piece(NamedTuple):
    """Rows that were appended together: the position of the first one, their key columns, and the
    only one of these as an array, if it is of integers."""

    start: int
    columns: Sequence[KeyColumn]
    integers: Any

    def last(self, key: Hashable) -> int:
        """The position of the last row of an integer; -1 if there is none."""
        (found,) = (self.integers == key).nonzero()
        return self.start + int(found[-1]) if len(found) else -1


class KeyIndex:
    """Maps every key to its row positions; append-only.

    Rows are indexed when somebody asks for keys, under a lock; the first lookups of single integers
    are answered by comparing what waits. What is indexed is read without one, as each reader bounds
    its questions by the number of rows it has seen (`below`, the end of some append), and what is
    indexed later never changes an answer below that bound. This rests on the order of writes: a row
    is linked to the key's previous one before it is published in the dict.
    """

    def __init__(self) -> None:
        self._last: dict[Hashable, int] = {}
        self._rows = 0
        self._appended = 0
        self._waiting: deque[_Piece] = deque()
        self._compared = 0
        self._lock = Lock()
        # By position: the key's previous position or -1, and its next one or NEVER.
        self._previous = np.full(_FIRST_CAPACITY, -1, np.int64)
        self._superseded_at = np.full(_FIRST_CAPACITY, NEVER, np.int64)

    def __len__(self) -> int:
        return self._appended

    def append(self, columns: Sequence[KeyColumn]) -> None:
        """Add the next rows, which have these key columns. A later row of a key replaces an earlier
        one."""
        self._waiting.append(_Piece(self._appended, columns, _integers(columns)))
        self._appended += len(columns[0])

    @property
    def waiting(self) -> int:
        """The rows that are not indexed yet."""
        return self._appended - self._rows

    def catch_up(self) -> None:
        """Index every row so far. Interrupted anywhere, the next call does the rest."""
        if self._waiting:
            with self._lock:
                while self._waiting:
                    piece = self._waiting[0]
                    if piece.start == self._rows:
                        self._index(piece.start, key_values(piece.columns))
                    self._waiting.popleft()  # only now may others go on without the lock
                self._compared = 0

    def _index(self, start: int, keys: Sequence[Hashable]) -> None:
        end = start + len(keys)
        self._reserve(end)
        known = len(self._last)
        fresh = self._last.keys().isdisjoint(keys)
        if not fresh:
            previous = np.fromiter(map(self._last.get, keys, repeat(-1)), np.int64, len(keys))
            # What an attempt that was interrupted has published knows what was before.
            begun = np.flatnonzero(previous >= start)
            previous[begun] = self._previous[previous[begun]]
            replaced = np.flatnonzero(previous >= 0)
            self._previous[start:end] = previous
            self._superseded_at[previous[replaced]] = replaced + start
        self._last.update(zip(keys, range(start, end), strict=True))
        if not fresh or len(self._last) - known < len(keys):
            # A key twice in this batch: its last row replaces the others. They need no links, as
            # nobody's bound lies inside a batch.
            last = np.fromiter(map(self._last.__getitem__, keys), np.int64, len(keys))
            early = np.flatnonzero(last != np.arange(start, end))
            self._superseded_at[early + start] = last[early]
        self._rows = end

    def last(self, key: Hashable, below: int) -> int:
        """The highest position of `key` that is below `below`; -1 if there is none."""
        for piece in self._few_waiting():
            if piece.start < below and (position := piece.last(key)) >= 0:
                return position
        position = self._last.get(key, -1)
        previous = self._previous
        while position >= below:
            position = int(previous[position])
        return position

    def last_of(self, keys: Sequence[Hashable], below: int) -> Positions:
        """`last` for many keys: int64, one position a key."""
        self.catch_up()
        found = np.fromiter(map(self._last.get, keys, repeat(-1)), np.int64, len(keys))
        previous = self._previous
        later = np.flatnonzero(found >= below)
        while later.size:
            found[later] = previous[found[later]]
            later = later[found[later] >= below]
        return found

    def superseded(self, below: int) -> Positions:
        """The positions below `below`, ascending, that a later one below it replaces."""
        self.catch_up()
        return np.flatnonzero(self._superseded_at[:below] < below)

    def __contains__(self, key: Hashable) -> bool:
        self.catch_up()
        return key in self._last

    def _few_waiting(self) -> list[_Piece]:
        """What a lookup had better compare than have indexed, newest first; all else is indexed."""
        waiting = self._waiting.copy()
        if not waiting:
            return []
        self._compared += 1
        few = len(waiting) <= _MOST_PIECES and self._compared <= _MOST_COMPARED
        if few and waiting[0].integers is not None:
            return list(reversed(waiting))
        self.catch_up()
        return []

    def _reserve(self, rows: int) -> None:
        capacity = len(self._superseded_at)  # the last to grow
        if rows <= capacity:
            return
        extra = max(rows, 2 * capacity) - capacity
        self._previous = np.concatenate([self._previous, np.full(extra, -1, np.int64)])
        self._superseded_at = np.concatenate([self._superseded_at, np.full(extra, NEVER, np.int64)])


def _integers(columns: Sequence[KeyColumn]) -> Any:
    if len(columns) > 1 or not is_integral(columns[0].type):
        return None
    return plain(columns[0]).to_numpy()
