"""The primary key hash index of a MemTable: where the versions of a key are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from itertools import repeat
from threading import Lock

import numpy as np
import numpy.typing as npt

NEVER = np.iinfo(np.int64).max
_FIRST_CAPACITY = 1024

Positions = npt.NDArray[np.int64]


class KeyIndex:
    """Maps every key to its row positions; append-only.

    One writer appends; readers need no lock, as each bounds its questions by the number of rows
    it has seen (`below`, the end of some append), and what is appended later never changes an
    answer below that bound. This rests on the order of writes: a row is linked to the key's
    previous one before it is published in the dict. Only what was deferred is indexed under a lock.
    """

    def __init__(self) -> None:
        self._last: dict[Hashable, int] = {}
        self._rows = 0
        self._deferred: deque[Callable[[], Sequence[Hashable]]] = deque()
        self._lock = Lock()
        # By position: the key's previous position or -1, and its next one or NEVER.
        self._previous = np.full(_FIRST_CAPACITY, -1, np.int64)
        self._superseded_at = np.full(_FIRST_CAPACITY, NEVER, np.int64)

    def __len__(self) -> int:
        self.catch_up()
        return self._rows

    def append(self, keys: Sequence[Hashable]) -> None:
        """Index the next `len(keys)` rows. A later row of a key replaces an earlier one."""
        with self._lock:
            self._append_deferred()
            self._append(keys)

    def defer(self, keys: Callable[[], Sequence[Hashable]]) -> None:
        """Index the next rows when somebody asks; `keys` then gives theirs. A scan never does."""
        self._deferred.append(keys)

    def catch_up(self) -> None:
        """Index what was deferred."""
        if self._deferred:
            with self._lock:
                self._append_deferred()

    def _append_deferred(self) -> None:
        while self._deferred:
            self._append(self._deferred[0]())
            self._deferred.popleft()  # only now may others go on without the lock

    def _append(self, keys: Sequence[Hashable]) -> None:
        start, end = self._rows, self._rows + len(keys)
        self._reserve(end)
        known = len(self._last)
        fresh = self._last.keys().isdisjoint(keys)
        if not fresh:
            previous = np.fromiter(map(self._last.get, keys, repeat(-1)), np.int64, len(keys))
            replaced = np.flatnonzero(previous >= 0)
            self._previous[start:end] = previous
            self._superseded_at[previous[replaced]] = replaced + start
        self._last.update(zip(keys, range(start, end), strict=True))
        self._rows = end
        if not fresh or len(self._last) - known < len(keys):
            # A key twice in this batch: its last row replaces the others. They need no links, as
            # nobody's bound lies inside a batch.
            last = np.fromiter(map(self._last.__getitem__, keys), np.int64, len(keys))
            early = np.flatnonzero(last != np.arange(start, end))
            self._superseded_at[early + start] = last[early]

    def last(self, key: Hashable, below: int) -> int:
        """The highest position of `key` that is below `below`; -1 if there is none."""
        self.catch_up()
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

    def _reserve(self, rows: int) -> None:
        capacity = len(self._previous)
        if rows <= capacity:
            return
        extra = max(rows, 2 * capacity) - capacity
        self._previous = np.concatenate([self._previous, np.full(extra, -1, np.int64)])
        self._superseded_at = np.concatenate([self._superseded_at, np.full(extra, NEVER, np.int64)])
