"""The first process: it writes every event and says what is durable."""

from __future__ import annotations

from collections.abc import Iterator

import memwal_sql as mw
from demo.events import EventBatch, Events
from demo.progress import Progress

FLUSHED_PARTS = 3
"""So often every MemTable is flushed; the rows of the last part stay in MemTables."""


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
