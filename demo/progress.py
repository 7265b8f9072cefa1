"""What the replay tells the second process: how many events were begun and how many are durable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.sharedctypes import SynchronizedArray

import memwal_sql as mw
from demo.events import EventBatch, Events, Kind

SPAWN = get_context("spawn")
"""Lance and DataFusion run threads, which do not survive a fork."""

FLUSHED_PARTS = 3
"""So often every MemTable is flushed; the rows of the last part stay in MemTables."""


@dataclass(frozen=True)
class Counts:
    """Events by kind, at one moment: those handed to the writer and those it acknowledged."""

    begun: tuple[int, ...]
    durable: tuple[int, ...]
    finished: bool


class Progress:
    """`Counts` in memory that two processes share."""

    def __init__(self) -> None:
        self._cells: SynchronizedArray[int] = SPAWN.Array("q", 2 * len(Kind) + 1)

    def begin(self, counts: tuple[int, ...]) -> None:
        """Say that these events are about to be written; readers may see them from now on."""
        self._add(0, counts)

    def acknowledge(self, counts: tuple[int, ...]) -> None:
        """Say that these events are durable; every reader has to see them from now on."""
        self._add(len(Kind), counts)

    def finish(self) -> None:
        """Say that no more events come."""
        with self._cells.get_lock():
            self._cells[2 * len(Kind)] = 1

    def read(self) -> Counts:
        """All counters as they were at one moment."""
        with self._cells.get_lock():
            cells = self._cells[:]
        kinds = len(Kind)
        return Counts(tuple(cells[:kinds]), tuple(cells[kinds : 2 * kinds]), bool(cells[-1]))

    def _add(self, first: int, counts: tuple[int, ...]) -> None:
        with self._cells.get_lock():
            for cell, count in enumerate(counts, start=first):
                self._cells[cell] += count


def replay(events: Events, writer: mw.TableWriter, progress: Progress) -> Iterator[EventBatch]:
    """Write the events in time order, a day at once, and yield each day when it is durable.

    Every MemTable becomes a flushed generation after each quarter of the events but the last.
    """
    part = len(events) // (FLUSHED_PARTS + 1) + 1
    written = 0
    for batch in events.batches():
        progress.begin(batch.counts)
        if batch.upserts.num_rows:
            writer.upsert(batch.upserts)
        if batch.deletes.num_rows:
            writer.delete(batch.deletes)
        progress.acknowledge(batch.counts)
        if written // part < (written + batch.events) // part:
            writer.flush()
        written += batch.events
        yield batch
    progress.finish()
