"""A statement that writes rows computed from rows that it reads: the first committer wins.

It claims the regions of its keys, opens a cut of each, reads, computes, and then enqueues its rows
only if none of their keys was written after the cut. Rows whose keys were are read and computed
again; the others keep their cut. Nothing is enqueued before all keys pass at once. So no update of
a key is lost; but rows that begin to meet a condition meanwhile, and rows read for other keys, are
not read again. A serializable statement claims every region that it reads, and reads all again if
anything was written there. Other processes have to claim a region to write it: of two that read
what the other writes, one finds a region fenced when it reads it, or can't append.

Rows of several regions are one transaction (`write/coordinator`), if the table takes transactions
and the rows of each region fit into a MemTable. Regions that a serializable statement has only read
take part in it, so that nobody writes there between the check and the record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final, Literal

import pyarrow as pa

from exec_nodes.arrow.large_columns import concatenated
from exec_nodes.base.thresholds import Thresholds
from exec_nodes.keys.keys import key_values
from memwal_sql.errors import (
    ConflictError,
    FencedError,
    InvalidCallError,
    MemWalError,
    UnsupportedError,
)
from memwal_sql.state.context import TableContext
from memwal_sql.storage.records.transactions import MOST_PARTS
from memwal_sql.telemetry import CONFLICTS
from memwal_sql.write.commit_queue import PendingWrite
from memwal_sql.write.conditional.recent import Cut
from memwal_sql.write.conditional.resolve import Compute, Resolved, among, key_names
from memwal_sql.write.coordinator import AtomicWrite, Description, Participant, takes_none
from memwal_sql.write.region_writer import RegionWriter

Route = Callable[[pa.RecordBatch], list[tuple[RegionWriter, pa.RecordBatch]]]
Cuts = dict[RegionWriter, Cut]
GetWriters = Callable[[], Sequence[RegionWriter]]
RegionWrites = list[tuple[RegionWriter, list[PendingWrite]]]

# Each failed attempt loses a key to another write, so that some writer makes progress.
_ATTEMPTS = 100
SNAPSHOT: Final = "snapshot"
SERIALIZABLE: Final = "serializable"
Isolation = Literal["snapshot", "serializable"]
_SHOWN_KEYS = 10
_UNDESCRIBED = Description()


class Together(Thresholds):
    """How many regions a statement writes as one transaction."""

    most_regions = MOST_PARTS


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one region, computed from rows that were read after a cut."""

    writer: RegionWriter
    cut: Cut
    rows: pa.RecordBatch
    primary_key: list[str]

    @property
    def keys(self) -> list[Hashable]:
        """The key values of its rows."""
        return key_values(self.rows.select(self.primary_key).columns)

    def divided(self, lost: Set[Hashable]) -> tuple[pa.RecordBatch, _Part]:
        """The rows whose keys are lost, and the part with the others."""
        keys = self.keys
        rest = among(self.rows, keys, frozenset(keys) - lost)
        return among(self.rows, keys, lost), replace(self, rows=rest)


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The writes that a statement has enqueued, to be landed: one by one, or as a transaction; and
    the numbers of rows written, rows skipped and keys without a row."""

    writes: RegionWrites | AtomicWrite
    rows: int
    skipped: int
    not_found: int

    @property
    def is_atomic(self) -> bool:
        """Whether its rows become visible together: it is a transaction, or one entry."""
        writes = self.writes
        return isinstance(writes, AtomicWrite) or sum(len(some) for _, some in writes) <= 1


@dataclass(frozen=True, slots=True)
class ReadRegions:
    """The regions of a table that a serializable statement reads.

    Attributes:
        claim: claims them.
        now: gives those that are claimed, of which it must not have missed any.
    """

    claim: GetWriters
    now: GetWriters


_NONE_READ = ReadRegions(tuple, tuple)


@dataclass(frozen=True, slots=True)
class Enqueuer:
    """Reads, computes and enqueues the rows of the statements of one table's writer.

    Attributes:
        route: divides rows by region and claims the regions.
        claimed: the writers of claimed regions.
        make_room: waits until that many bytes may be enqueued.
        retrying: held by the one statement that is computed again, so that statements that lost a
            key do not take it from each other.
        order: held while rows are enqueued, by every call of the table's writer.
        description: what the records of transactions say of them. With an actor, every statement
            has a record.
    """

    primary_key: tuple[str, ...]
    route: Route
    claimed: Callable[[], Sequence[RegionWriter]]
    make_room: Callable[[int], None]
    retrying: Lock
    order: AbstractContextManager[object]
    context: TableContext
    durable: bool
    description: Description = _UNDESCRIBED

    def over_keys(self, keys: pa.RecordBatch, compute: Compute) -> Enqueued:
        """Enqueue the rows that `compute` makes of distinct `keys`, rows in the MemTables' schema
        of which only the key counts.

        Raises ConflictError with the keys that others wrote each time.
        """
        cuts = {writer: writer.open_cut() for writer, _ in self.route(keys)}
        return self._write(compute(keys), compute, cuts)

    def over_rows(self, select: Callable[[], Resolved], compute: Compute) -> Enqueued:
        """As `over_keys`, for the rows that `select` finds: `compute` is called for those that were
        written meanwhile. If a region was not claimed when its rows were read, it is claimed, and
        all rows are read again."""
        resolved, cuts = self._selected(select)
        return self._write(resolved, compute, cuts)

    def as_a_whole(
        self, select: Callable[[], Resolved], reads: ReadRegions = _NONE_READ
    ) -> Enqueued:
        """As `over_rows`, but all rows are read again if one of them was written meanwhile or, if
        the statement is serializable, anything in the regions that it reads."""
        outcome, lost = self._whole(select, reads)
        if outcome is None:
            with self.retrying:
                for _ in range(_ATTEMPTS):
                    outcome, lost = self._whole(select, reads)
                    if outcome is not None:
                        break
                else:
                    raise _conflict(lost, self.context)
        return outcome

    def _whole(
        self, select: Callable[[], Resolved], reads: ReadRegions
    ) -> tuple[Enqueued | None, pa.RecordBatch]:
        """One attempt; if it failed, nothing and the keys that others wrote."""
        regions = reads.claim()
        for writer in regions:
            writer.check_usable()
        resolved, cuts = self._selected(select)
        for writer in regions:
            if writer not in cuts:  # fenced since
                writer.check_usable()
        parts = self._parts(resolved, cuts)
        keys = resolved.rows.select(list(self.primary_key))
        # Of two statements that make regions, one at least finds the other's, as each has claimed
        # its own by now.
        if not set(reads.claim()) <= {*regions, *(part.writer for part in parts)}:
            return None, keys.slice(0, 0)
        read = {writer: cuts[writer] for writer in regions}
        writes, lost = self._enqueue(parts, read, reads.now)
        if writes is None:
            return None, among(keys, key_values(keys.columns), lost)
        rows = sum(part.rows.num_rows for part in parts)
        return Enqueued(writes, rows, len(resolved.skipped), resolved.not_found), keys

    def _selected(self, select: Callable[[], Resolved]) -> tuple[Resolved, Cuts]:
        """The rows that `select` finds, and a cut of each of their regions from before."""
        while True:
            cuts = {}
            for writer in self.claimed():
                with suppress(MemWalError):  # fenced: reported below if it has a row
                    cuts[writer] = writer.open_cut()
            resolved = select()
            new = [writer for writer, _ in self.route(resolved.rows) if writer not in cuts]
            for writer in new:
                writer.check_usable()
            if not new:
                return resolved, cuts

    def _write(self, resolved: Resolved, compute: Compute, cuts: Cuts) -> Enqueued:
        parts = self._parts(resolved, cuts)
        skipped, not_found = list(resolved.skipped), resolved.not_found
        writes, lost = self._enqueue(parts, {})
        if writes is None:
            with self.retrying:
                for _ in range(_ATTEMPTS):
                    rows, kept = zip(*(part.divided(lost) for part in parts), strict=True)
                    remaining, parts = concatenated(rows), list(kept)
                    skipped = [key for key in skipped if key not in lost]
                    cuts = {part.writer: part.writer.open_cut() for part in parts}
                    resolved = compute(remaining)
                    parts += self._parts(resolved, cuts)
                    skipped, not_found = (
                        skipped + list(resolved.skipped),
                        not_found + resolved.not_found,
                    )
                    writes, lost = self._enqueue(parts, {})
                    if writes is not None:
                        break
                else:
                    raise _conflict(remaining.select(list(self.primary_key)), self.context)
        written = sum(part.rows.num_rows for part in parts)
        return Enqueued(writes, written, len(skipped), not_found)

    def _parts(self, resolved: Resolved, cuts: Cuts) -> list[_Part]:
        key = list(self.primary_key)
        routed = self.route(resolved.rows)
        if any(writer not in cuts for writer, _ in routed):
            raise FencedError("regions were handed over since their rows were read")
        return [_Part(writer, cuts[writer], rows, key) for writer, rows in routed]

    def _enqueue(
        self, parts: Sequence[_Part], read: Cuts, now: GetWriters = tuple
    ) -> tuple[RegionWrites | AtomicWrite | None, set[Hashable]]:
        """Enqueue all rows; or none, if after a cut others wrote one of its keys, which are
        returned, or a region of `read`, or if there are other regions `now`."""
        self.make_room(sum(part.rows.nbytes for part in parts))
        keys = [frozenset(part.keys) for part in parts]
        writers = {*read, *(part.writer for part in parts)}
        with self.order:
            lost: set[Hashable] = set()
            rows: dict[RegionWriter, list[pa.RecordBatch]] = {}
            for writer in writers:
                writer.check_usable()
            for part, of_part in zip(parts, keys, strict=True):
                lost |= part.writer.recent.written(part.cut, of_part)
                if part.rows.num_rows:
                    rows.setdefault(part.writer, []).append(part.rows)
            if lost or any(writer.recent.moved(cut) for writer, cut in read.items()):
                return None, lost
            if not set(now()) <= writers:
                return None, lost
            batches = {writer: concatenated(some) for writer, some in rows.items()}
            if (transaction := self._transaction(batches, read)) is not None:
                return transaction, lost
            return [(w, w.enqueue(rows, checked=True)) for w, rows in batches.items()], lost

    def transaction_of(self, rows: pa.RecordBatch, *, atomic: bool) -> AtomicWrite | None:
        """The transaction that writes whole rows. Unless it must be `atomic`, None where one entry
        suffices, or where they can't be one transaction."""
        self.make_room(rows.nbytes)
        parts = self.route(rows)
        with self.order:
            return self._transaction(dict(parts), (), atomic=atomic)

    def is_one_entry(self, rows: pa.RecordBatch) -> bool:
        """Whether whole rows are written by one entry."""
        parts = self.route(rows)
        return len(parts) == 1 and all(writer.fits(of_region) for writer, of_region in parts)

    def _transaction(
        self,
        batches: Mapping[RegionWriter, pa.RecordBatch],
        read: Collection[RegionWriter],
        *,
        atomic: bool = False,
    ) -> AtomicWrite | None:
        """The transaction that writes some regions and has read others; None where one entry
        suffices, or where they can't be one transaction. Raises UnsupportedError for that if it
        must be atomic, or has an actor, and thus a record."""
        regions, actor = {*batches, *read}, self.description.actor
        has_record = atomic or actor is not None
        refuses = has_record or self.description.must_be_atomic
        fits = all(writer.fits(rows) for writer, rows in batches.items())
        if not batches or (len(regions) == 1 and not has_record and (fits or not refuses)):
            return None
        if not self.context.takes_transactions:
            if not refuses:
                return None
            raise takes_none(self.context)
        if len(regions) > Together.most_regions or not fits:
            if not refuses:
                return None
            record = "" if actor is None else f", and so for a record of its actor {actor!r}"
            raise UnsupportedError(
                f"these rows of {len(regions)} regions are too large for one transaction{record}: "
                f"nothing was written. {Together.most_regions} regions are the most, and in each "
                "the rows of one MemTable: write fewer at once, or with a writer of larger ones "
                "(memtable_rows, memtable_bytes)"
            )
        none = next(iter(batches.values())).slice(0, 0)
        parts = [Participant(self.context, w, batches.get(w, none)) for w in regions]
        transaction = AtomicWrite(parts, self.description)
        if not self.durable:  # while others can't enqueue
            transaction.land()
        return transaction


def check_isolation(isolation: str) -> None:
    """Raise InvalidCallError for an unknown level of isolation."""
    if isolation not in (SNAPSHOT, SERIALIZABLE):
        raise InvalidCallError(f"isolation={isolation!r} must be {SNAPSHOT!r} or {SERIALIZABLE!r}")


def _conflict(keys: pa.RecordBatch, context: TableContext) -> ConflictError:
    """The error for keys that others wrote each time."""
    CONFLICTS(1, {"table": context.store.uri})
    if not keys.num_rows:
        return ConflictError(
            f"others wrote what this statement had read {_ATTEMPTS} times: nothing was written, "
            "run it again"
        )
    shown = ", ".join(map(repr, key_names(keys.slice(0, _SHOWN_KEYS))))
    more = f" and {keys.num_rows - _SHOWN_KEYS} more" if keys.num_rows > _SHOWN_KEYS else ""
    return ConflictError(
        f"others wrote the keys {shown}{more} {_ATTEMPTS} times between this statement's reading "
        "and its writing: nothing was written, run it again",
        frozenset(key_names(keys)),
    )
