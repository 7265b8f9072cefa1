"""The writers of a table's regions, one each, opened when the first rows for their region come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import TypeVar
from uuid import UUID

import pyarrow as pa

from exec_nodes.arrow.large_columns import concatenated
from exec_nodes.base.threads import Outcome, outcomes
from memwal_sql.errors import (
    ConflictError,
    FencedError,
    MemWalError,
    SourceGoneError,
    UnsupportedError,
    WriterFailedError,
)
from memwal_sql.life_log import deferred_logs
from memwal_sql.state import open_writers
from memwal_sql.storage.deadlines import unbounded
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.retries import ATTEMPTS
from memwal_sql.write.commit_queue import PendingWrite
from memwal_sql.write.options import PARALLEL_REGIONS
from memwal_sql.write.region_opener import RegionClaimer, RegionOpener
from memwal_sql.write.region_writer import RegionWriter
from memwal_sql.write.router import RegionKey, RegionValues, Router
from memwal_sql.write.turns import Turns

R = TypeVar("R")


class RegionWriters:
    """Divides rows among the writers of their regions, which it opens, and calls several at
    once."""

    def __init__(
        self,
        opener: RegionOpener,
        region: str | None,
        check_open: Callable[[], None],
        turns: Turns | None = None,
        check_base: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            region: the name or UUID of the one region to write, for manual regions.
            check_open: raises if no region may be opened any more.
            turns: how to wait before a region is taken over; None: not at all.
            check_base: raises if nobody would read the rows of a call.
        """
        self._opener = opener
        self._turns = turns
        self._manual = region or ""
        self._check_open = check_open
        self._check_base = check_base
        self._router = None if opener.spec is None else Router(opener.spec)
        self._writers: dict[RegionKey, RegionWriter] = {}
        self._claimers: dict[RegionKey, RegionClaimer] = {}
        self._open_lock = Lock()

    def __iter__(self) -> Iterator[RegionWriter]:
        """The writers that are open now."""
        return iter(list(self._writers.values()))

    @property
    def unfenced(self) -> list[RegionWriter]:
        """The writers that are open now, except those of regions that are handed over."""
        return [writer for writer in self if not writer.is_handed_over]

    def claimed_again(self) -> list[RegionWriter]:
        """The writers that are open now, once those of regions that were handed over have claimed
        these in their turn."""
        self._open_missing({key: {} for key in self._writers}, lambda _: [])
        return list(self)

    def in_turn(self, call: Callable[[], R]) -> R:
        """The result of a call that writes nothing if it raises FencedError: if writers take turns,
        it is made again then. Raises ConflictError if others take regions over each time."""
        for _ in range(ATTEMPTS):
            try:
                return call()
            except FencedError as error:
                if self._turns is None or not self._opener.options.durable:
                    raise
                fence = error
        raise ConflictError(
            f"other processes took over regions {ATTEMPTS} times during this call: nothing was "
            "written, run it again, or let one process write"
        ) from fence

    def route(self, batch: pa.RecordBatch) -> list[tuple[RegionWriter, pa.RecordBatch]]:
        """The rows of each region, and the region's writer, which has claimed it. All rows that are
        written come through here."""
        self._check_base()
        spec = self._opener.spec
        if self._router is None or spec is None:
            if self._lacks(()):
                self._open_missing({(): {}}, lambda _: [self._opener.manual_claimer(self._manual)])
            return [(self._writers[()], batch)]
        parts = self._router.route(batch)
        if any(self._lacks(part.key) for part in parts):
            self._open_missing(
                {part.key: part.values for part in parts}, partial(self._opener.claimers, spec)
            )
        return [(self._writers[part.key], part.rows) for part in parts]

    def append(self, batch: pa.RecordBatch) -> dict[UUID, int]:
        """Write rows, and return the position of the last entry of each region. Rows whose region
        is handed over meanwhile are written in the next turn. Raises the errors of `together`."""
        positions: dict[UUID, int] = {}
        rows = batch
        while True:
            handed_over: list[pa.RecordBatch] = []
            append = partial(self._append, handed_over)
            try:
                calls = {writer: partial(append, writer, part) for writer, part in self.route(rows)}
                positions |= self.together(calls)
                if not handed_over:
                    return positions
                # Who takes a region takes all of the call: the next one needs them too.
                self.route(batch)
            except BaseException as error:
                _note_written(error, positions)
                raise
            rows = concatenated(handed_over)

    def _append(
        self, handed_over: list[pa.RecordBatch], writer: RegionWriter, rows: pa.RecordBatch
    ) -> int | None:
        """The position of these rows, or of the first of them; others are `handed_over`. None if
        no row is written."""
        writes: list[PendingWrite] = []
        try:
            writes = writer.enqueue(rows)
            return writer.land(writes)
        except FencedError:
            if not writer.is_handed_over:
                raise
            landed = [write for write in writes if write.position]
            handed_over.append(rows.slice(sum(write.batch.num_rows for write in landed)))
            return landed[-1].position if landed else None

    def all(self, regions: Sequence[tuple[int, RegionValues | None]]) -> list[RegionWriter]:
        """The writers of all regions, given by spec and values; they are claimed.

        Raises UnsupportedError for a region that this writer's rows could not be in.
        """
        spec = self._opener.spec
        by_key: dict[RegionKey, RegionValues] = {}
        for spec_id, values in regions:
            if spec is None or spec_id != spec.spec_id or values is None:
                raise UnsupportedError(
                    "a serializable statement claims every region, and one of this table belongs "
                    "to an earlier region spec, or its values are not known"
                )
            key = tuple(values[name] for name in spec.field_ids)
            by_key[key] = values
        if spec is not None and any(self._lacks(key) for key in by_key):
            self._open_missing(by_key, partial(self._opener.claimers, spec))
        return list(self)

    def check_regions_stay(self, before: pa.Table, after: pa.Table) -> None:
        """Raise UnsupportedError if a key and its replacement are in different regions."""
        if self._router is None:
            return
        regions = zip(*(self._router.regions(keys) for keys in (before, after)), strict=True)
        for place, (old, new) in enumerate(regions):
            if old != new:
                keys = [tuple(t.slice(place, 1).to_pylist()[0].values()) for t in (before, after)]
                raise UnsupportedError(
                    f"the row of the key {keys[0]} would move to another region with the key "
                    f"{keys[1]}, and the statement is too large for one transaction: change fewer "
                    "rows at once, or insert it with the new key and delete the old one"
                )

    def together(self, calls: Mapping[RegionWriter, Callable[[], int | None]]) -> dict[UUID, int]:
        """The position that each writer's call returns, by region; None if it has written nothing.
        Raises the first error, preferably one that leaves open what was written, with a note of the
        calls that succeeded."""
        if len(calls) == 1:
            ((writer, call),) = calls.items()
            position = call()
            return {} if position is None else {writer.region_id: position}
        if self._opener.options.durable:
            # No append of an interrupted call may land after a later call's: those that have not
            # begun never do. Enqueued rows have their place, and land with the next ones.
            appends = outcomes(_seen_through, calls.values(), PARALLEL_REGIONS, all_end=True)
        else:
            appends = [_buffered(call) for call in calls.values()]
        positions: dict[UUID, int] = {}
        errors: list[BaseException] = []
        for writer, append in zip(calls, appends, strict=True):
            if append.error is not None:
                errors.append(append.error)
            elif (position := append.get()) is not None:
                positions[writer.region_id] = position
        if errors:
            unknown = (error for error in errors if isinstance(error, WriterFailedError))
            raised = next(unknown, errors[0])
            _note_written(raised, positions)
            raise raised
        return positions

    def flush_wal(self, writers: Iterable[RegionWriter]) -> None:
        """Put what these writers buffer into the WAL, several regions at once. Raises the first
        error when all have ended."""
        writers = list(writers)
        buffered = [writer for writer in writers if writer.has_buffered]
        ended = outcomes(RegionWriter.flush_wal, buffered, PARALLEL_REGIONS, all_end=True)
        for outcome in ended:
            outcome.get()
        for writer in writers:
            writer.flush_wal()  # raises what has stopped it, also where it has no rows

    def tick(self) -> None:
        """Flush what is due in several regions at once. An error stops the region's writer, and its
        next call raises it."""
        due = [writer for writer in self if writer.is_due]
        outcomes(RegionWriter.tick, due, PARALLEL_REGIONS, all_end=True)

    def each(self, call: Callable[[RegionWriter], None], errors: list[Exception]) -> None:
        """Make a call for every writer, and collect the errors."""
        for writer in self:
            try:
                call(writer)
            except Exception as error:
                errors.append(error)

    def wait(self) -> None:
        """Return when no region is being opened."""
        with self._open_lock:
            pass

    def _lacks(self, key: RegionKey) -> bool:
        writer = self._writers.get(key)
        return writer is None or writer.is_handed_over

    def _open_missing(
        self,
        regions: Mapping[RegionKey, RegionValues],
        claimers_of: Callable[[list[RegionValues]], list[RegionClaimer]],
    ) -> None:
        """Claim those regions of a call that this writer lacks, all of them in one turn."""
        with deferred_logs(), self._open_lock:
            self._check_open()
            missing = [key for key in regions if self._lacks(key)]
            if not missing:
                return
            new = [key for key in missing if key not in self._claimers]
            contested = len(new) < len(missing)
            # All are looked up before one is created, or they would find each other's; and before
            # the columns are: who claims one after that is seen by its epoch.
            claimers = claimers_of([regions[key] for key in new]) if new else []
            self._opener.check_claimable()
            of_call = {key: self._claimers[key] for key in regions if key in self._claimers}
            of_call.update(zip(new, claimers, strict=True))
            try:
                while lacking := self._lacking(of_call):
                    if self._turns is not None:
                        lacking = self._turns.wait(partial(self._lacking, of_call, contested))
                    self._claim(lacking)
                    contested = True
            except SourceGoneError:  # others have written a wider type than this writer knows
                self._opener.check_claimable()
                raise

    def _lacking(
        self, regions: Mapping[RegionKey, RegionClaimer], probing: bool = False
    ) -> dict[RegionKey, RegionClaimer]:
        """Those of these regions that this writer lacks, after `probing` the others. Raises
        ReopenError if no region may be opened any more."""
        self._check_open()
        if probing:
            claimed = [self._writers[key] for key in regions if not self._lacks(key)]
            map_remote(self._opener.context.store.remote, RegionWriter.probe, claimed)
        return {key: claimer for key, claimer in regions.items() if self._lacks(key)}

    def _claim(self, lacking: Mapping[RegionKey, RegionClaimer]) -> None:
        """Claim regions. If writers take turns, those that others claim at the same time are left
        for the next turn. Raises the first other error."""
        errors = []
        claims = outcomes(RegionClaimer.claim, lacking.values(), PARALLEL_REGIONS, all_end=True)
        for key, claimed in zip(lacking, claims, strict=True):
            if claimed.error is None:
                writer = claimed.get()
                self._take_over(writer)  # before it takes rows: readers find these with it
                self._writers[key] = writer
                self._claimers[key] = lacking[key]
            elif self._turns is None or not isinstance(claimed.error, FencedError):
                errors.append(claimed.error)
        if errors:
            raise errors[0]

    def _take_over(self, writer: RegionWriter) -> None:
        before = open_writers.register(self._opener.context.identity, writer)
        if before is not None:
            before.taken_over(writer.epoch)


def _buffered(call: Callable[[], R]) -> Outcome[R]:
    """The outcome of a call that does not wait for the store."""
    try:
        return Outcome(call())
    except MemWalError as error:
        return Outcome(error=error)


def _note_written(error: BaseException, positions: Mapping[UUID, int]) -> None:
    """Note at an error which regions have rows of the call, also those of buffered writers."""
    if positions:
        regions = [str(region) for region in positions]
        error.add_note(f"the rows of this call for the regions {regions} are written")


def _seen_through(call: Callable[[], R]) -> R:
    with unbounded():
        return call()
