"""The primary key hash index of a MemTable: where the versions of a key are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from exec_nodes.keys.keys import KeyBatch, KeyColumn, key_column, one_array
from memwal_native import KeyVersions

Positions = npt.NDArray[np.int64]


class KeyIndex:
    """Maps every key to its row positions; append-only. Safe to use from several threads.

    Each reader limits its lookups to the rows it has seen (`below`): rows appended later never
    change an answer below that limit.
    """

    def __init__(self) -> None:
        self._versions = KeyVersions()

    def __len__(self) -> int:
        return len(self._versions)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._versions.nbytes

    def append(self, columns: Sequence[KeyColumn]) -> None:
        """Add the next rows, which have these key columns. A later row of a key replaces an earlier
        one."""
        self._versions.append(one_array(key_column(columns)))

    def last(self, key: KeyBatch, below: int) -> int:
        """The highest position of the only key that is below `below`; -1 if there is none."""
        if len(key.names) == 1:
            return self._versions.last(key.values[0], below)
        return int(self.last_of(key, below)[0])

    def last_of(self, keys: KeyBatch, below: int) -> Positions:
        """`last` for many keys: int64, one position a key."""
        return np.frombuffer(self._versions.last_of(one_array(keys.column), below), np.int64)

    def superseded(self, below: int) -> Positions:
        """The positions below `below`, ascending, that a later one below it replaces."""
        return np.frombuffer(self._versions.superseded(below), np.int64)
