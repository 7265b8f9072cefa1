"""The keys that are written to a region while a statement reads it.

A statement that writes values computed from rows it read opens a cut first. Writes after the cut
are remembered while the cut exists, in memory only. Any other process that writes the region has
fenced this writer; who claims it again has replayed what was written meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence, Set
from weakref import WeakSet

import pyarrow as pa

from exec_nodes.base.lazy import lazy_property
from exec_nodes.keys.keys import key_values
from memwal_sql.state.memtable import MemTable


class Cut:
    """A place in a region's order of writing, after the writes up to `ticket` of one writer, or
    before what other writers wrote, which is `earlier`.

    Attributes:
        memtable: the active MemTable at that place, with so many `rows`; None if it is not known.
    """

    def __init__(
        self, ticket: int, memtable: MemTable | None = None, earlier: Sequence[Write] = ()
    ) -> None:
        self.ticket = ticket
        self.memtable = memtable
        self.rows = 0 if memtable is None else memtable.rows
        self.earlier = earlier


class Write:
    """The keys of rows that were written by the call with a `ticket`."""

    def __init__(self, ticket: int, keys: pa.RecordBatch) -> None:
        self.ticket = ticket
        self._keys = keys

    @lazy_property
    def keys(self) -> frozenset[Hashable]:
        """The key values of its rows."""
        return frozenset(key_values(self._keys.columns))


class RecentWrites:
    """The writes after the oldest open cut. Nothing here locks: the region writer does."""

    def __init__(self, primary_key: Sequence[str]) -> None:
        self.primary_key = list(primary_key)
        # The set is weak, so that an interrupted statement leaves no cut.
        self._cuts: WeakSet[Cut] = WeakSet()
        self._writes: deque[Write] = deque()

    def open(self, ticket: int, memtable: MemTable | None = None) -> Cut:
        """A cut after the newest write, whose ticket is given."""
        cut = Cut(ticket, memtable)
        self._cuts.add(cut)
        return cut

    def add(self, ticket: int, batch: pa.RecordBatch) -> None:
        """Remember the keys of a write, if there is a cut; forget writes before all cuts."""
        oldest = min((cut.ticket for cut in self._cuts), default=None)
        while self._writes and (oldest is None or self._writes[0].ticket <= oldest):
            self._writes.popleft()
        if oldest is not None:
            self._writes.append(Write(ticket, batch.select(self.primary_key)))

    def moved(self, cut: Cut) -> bool:
        """Whether anything was written after the cut."""
        return bool(cut.earlier) or (bool(self._writes) and self._writes[-1].ticket > cut.ticket)

    def written(self, cut: Cut, keys: Set[Hashable]) -> set[Hashable]:
        """The `keys` that were written after the cut."""
        keys_written: set[Hashable] = set()
        for write in cut.earlier:
            keys_written |= write.keys & keys
        for write in reversed(self._writes):
            if write.ticket <= cut.ticket:
                break
            keys_written |= write.keys & keys
        return keys_written
