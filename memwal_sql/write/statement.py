"""A statement that writes what it computes from rows that it reads: the first committer wins.

It claims the regions of its keys, opens a cut of each, reads, computes, and then enqueues its rows
only if none of their keys was written after the cut. Those that were are read and computed again;
the others keep their cut. Nothing is enqueued before all keys pass at once. So of each key no
update is lost; rows that begin to meet a condition meanwhile, and what other keys were read for,
are not looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np
import pyarrow as pa

from exec_nodes.keys.keys import key_values
from memwal_sql.errors import ConflictError
from memwal_sql.write.commit_queue import PendingWrite
from memwal_sql.write.conditional.recent import Cut
from memwal_sql.write.conditional.resolve import Compute, Resolved
from memwal_sql.write.region_writer import RegionWriter

Route = Callable[[pa.RecordBatch], list[tuple[RegionWriter, pa.RecordBatch]]]
Enqueued = list[tuple[RegionWriter, list[PendingWrite]]]

# A key is lost to somebody else's write each time, so that somebody gets on.
_ATTEMPTS = 100
_SHOWN_KEYS = 10


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one region, computed from what was read after a cut."""

    writer: RegionWriter
    cut: Cut
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Statements:
    """Runs the statements of one table's writer.

    Attributes:
        route: divides rows by region and claims these.
        claimed: the writers of regions that are claimed.
        make_room: waits until so many bytes may be enqueued.
        retrying: held by the one statement that is computed again; so those that lost a key do not
            take it from each other.
    """

    primary_key: tuple[str, ...]
    route: Route
    claimed: Callable[[], Sequence[RegionWriter]]
    make_room: Callable[[int], None]
    retrying: Lock

    def over_keys(self, keys: pa.RecordBatch, compute: Compute) -> tuple[Enqueued, Resolved]:
        """Enqueue what `compute` makes of distinct `keys`, rows in the MemTables' schema of which
        only the key counts; what was enqueued, and all that was computed, with its rows.

        Raises ConflictError with the keys that somebody else wrote each time.
        """
        with ExitStack() as closing:
            cuts = self._cuts([writer for writer, _ in self.route(keys)], closing)
            return self._write(compute(keys), compute, cuts, closing)

    def over_rows(
        self, select: Callable[[], Resolved], compute: Compute
    ) -> tuple[Enqueued, Resolved]:
        """As `over_keys`, of the rows that `select` finds: `compute` is asked for those of them
        that were written meanwhile. A region that was not claimed when its rows were read is
        claimed, and all are read again."""
        while True:
            with ExitStack() as closing:
                cuts = self._cuts(self.claimed(), closing)
                found = select()
                if all(writer in cuts for writer, _ in self.route(found.rows)):
                    return self._write(found, compute, cuts, closing)

    def _write(
        self,
        found: Resolved,
        compute: Compute,
        cuts: dict[RegionWriter, Cut],
        closing: ExitStack,
    ) -> tuple[Enqueued, Resolved]:
        parts: list[_Part] = []
        skipped = missing = 0
        lost: Set[Hashable] = frozenset()
        for attempt in range(_ATTEMPTS):
            skipped, missing = skipped + found.skipped, missing + found.missing
            parts += [_Part(w, cuts[w], rows) for w, rows in self.route(found.rows)]
            self.make_room(sum(part.rows.nbytes for part in parts))
            enqueued, lost = self._enqueue(parts)
            if not lost:
                batches = [part.rows for part in parts] or [found.rows]
                rows = pa.concat_batches(batches)
                return enqueued, Resolved(rows, skipped, missing)
            if attempt == 0:
                closing.enter_context(self.retrying)
            left = [self._only(part.rows, lost, True) for part in parts]
            parts = [replace(p, rows=self._only(p.rows, lost, False)) for p in parts]
            cuts = self._cuts([part.writer for part in parts], closing)
            found = compute(pa.concat_batches(left))
        raise conflict(lost)

    def _cuts(self, writers: Sequence[RegionWriter], closing: ExitStack) -> dict[RegionWriter, Cut]:
        cuts = {}
        for writer in writers:
            if writer not in cuts:
                cuts[writer] = writer.open_cut()
                closing.callback(writer.close_cut, cuts[writer])
        return cuts

    def _enqueue(self, parts: Sequence[_Part]) -> tuple[Enqueued, set[Hashable]]:
        """Enqueue all rows, or none and the keys that were written after their cut."""
        rows: dict[RegionWriter, list[pa.RecordBatch]] = {}
        with ExitStack() as locks:
            for writer in sorted({p.writer for p in parts}, key=lambda one: one.region_id.bytes):
                locks.enter_context(writer.order)
                writer.check_usable()
            lost: set[Hashable] = set()
            for part in parts:
                keys = frozenset(self._keys(part.rows))
                lost |= part.writer.recent.written(part.cut, keys)
                if part.rows.num_rows:
                    rows.setdefault(part.writer, []).append(part.rows)
            if lost:
                return [], lost
            return [(w, w.enqueue(pa.concat_batches(batches))) for w, batches in rows.items()], lost

    def _keys(self, rows: pa.RecordBatch) -> list[Hashable]:
        return key_values(rows.select(list(self.primary_key)).columns)

    def _only(self, rows: pa.RecordBatch, keys: Set[Hashable], among: bool) -> pa.RecordBatch:
        """The rows whose key is among these, or is not."""
        chosen = ((key in keys) == among for key in self._keys(rows))
        return rows.filter(pa.array(np.fromiter(chosen, np.bool_, rows.num_rows)))


def conflict(keys: Set[Hashable]) -> ConflictError:
    """The error for keys that others wrote each time."""
    shown = ", ".join(repr(key) for key in list(keys)[:_SHOWN_KEYS])
    more = f" and {len(keys) - _SHOWN_KEYS} more" if len(keys) > _SHOWN_KEYS else ""
    return ConflictError(
        f"others wrote the keys {shown}{more} {_ATTEMPTS} times between this statement's reading "
        "and its writing: nothing of it was written, make it again",
        frozenset(keys),
    )
