"""Queries that are run over a new base version before anybody waits for their results."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from memwal_sql.read.planning import Read, batches
from planner.model import Snapshot

# So many kinds of queries are remembered for so long, each by the last one that was asked.
_MOST = 16
_REMEMBERED_SECONDS = 60.0
# What takes longer is hardly answered from memory, and is left out for some versions.
_SECONDS = 2.0
_LEFT_OUT = 8
# A process that ends waits for a rehearsal.
_SECONDS_OF_ALL = 4.0

Rehearsal = Callable[[Snapshot], Iterable[object]]


@dataclass
class _Kind:
    last: Rehearsal
    noted: float
    left_out: int = 0


class Rehearsals:
    """The last query of each kind. Safe to use from several threads.

    What a query needs of a version, it leaves in memory: masks, places of keys, columns of new
    fragments, how far indexes reach.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._kinds: dict[Hashable, _Kind] = {}
        self._clock = clock

    def __len__(self) -> int:
        return len(self._kinds)

    def note(self, what: Hashable, rehearsal: Rehearsal) -> None:
        """Remember a query of the kind `what`: how to run it over a snapshot."""
        known = self._kinds.get(what)
        if known is not None:
            known.last, known.noted = rehearsal, self._clock()
            return
        if len(self._kinds) >= _MOST:
            with suppress(KeyError, StopIteration, RuntimeError):  # another thread may do the same
                del self._kinds[next(iter(self._kinds))]
        self._kinds[what] = _Kind(rehearsal, self._clock())

    def note_read(self, read: Read) -> None:
        """The same for a query that is planned."""
        self.note(read.what, lambda snapshot: batches(read.plan(snapshot)))

    def run(self, snapshot: Snapshot) -> None:
        """Run those of late that are fast enough. What one raises is for the next real one."""
        last = self._clock() + _SECONDS_OF_ALL
        for what, kind in list(self._kinds.items()):
            begun = self._clock()
            if begun > last:
                break
            if begun - kind.noted > _REMEMBERED_SECONDS:
                self._kinds.pop(what, None)
                continue
            if kind.left_out:
                kind.left_out -= 1
                continue
            end = begun + _SECONDS
            with suppress(Exception):
                for _ in kind.last(snapshot):
                    if self._clock() > end:
                        break
            if self._clock() > end:
                kind.left_out = _LEFT_OUT
