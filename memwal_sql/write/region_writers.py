"""The writers of a table's regions, one each, opened when the first rows for their region come."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from math import inf
from threading import Lock
from typing import TypeVar
from uuid import UUID
from weakref import WeakSet

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
from memwal_sql.write.conditional.recent import Cut
from memwal_sql.write.generations import PendingWrite
from memwal_sql.write.options import PARALLEL_REGIONS
from memwal_sql.write.region_opener import RegionClaimer, RegionOpener
from memwal_sql.write.region_writer import RegionWriter
from memwal_sql.write.router import RegionKey, RegionValues, Router
from memwal_sql.write.turns import Turns

R = TypeVar("R")
_numbers = count()
TableRegion = tuple["RegionWriters", RegionKey]
"""A region of one of several tables."""


class RegionWriters:
    """Divides rows among the writers of their regions, which it opens, and calls several at
    once."""

    def __init__(
        self,
        opener: RegionOpener,
        region: str | None,
        check_open: Callable[[], None],
        turns: Turns | None = None,
    ) -> None:
        """
        Args:
            region: the name or UUID of the one region to write, for manual regions.
            check_open: raises if no region may be opened any more.
            turns: how to wait before a region is taken over; None: not at all.
        """
        self._opener = opener
        self._turns = turns
        self._manual = region or ""
        self._check_open = check_open
        self._router = None if opener.table.spec is None else Router(opener.table.spec)
        self._writers: dict[RegionKey, RegionWriter] = {}
        self._claimers: dict[RegionKey, RegionClaimer] = {}
        self._used: dict[RegionKey, float] = {}  # when rows last came for a region
        self.open_lock = Lock()
        self._partners: WeakSet[RegionWriters] = WeakSet()
        self.number = next(_numbers)

    def __iter__(self) -> Iterator[RegionWriter]:
        """The writers that are open now."""
        return iter(list(self._writers.values()))

    @property
    def unfenced(self) -> list[RegionWriter]:
        """The writers that are open now, except those of regions that are handed over."""
        return [writer for writer in self if not writer.is_handed_over]

    def begin_cuts(self) -> dict[RegionWriter, Cut]:
        """A cut of every region that is claimed now, and of those that were, from before they were
        handed over, for `landed_cuts` and then `carried`."""
        cuts = {}
        for writer in self:
            with suppress(MemWalError):  # it has stopped: reported where it is written
                cuts[writer] = writer.begin_cut()
        return cuts

    def take_turns_with(self, others: Iterable[RegionWriters]) -> None:
        """Note that calls write regions of other tables together with those of this one: who waits
        for a turn in some of them takes back what was lost in all."""
        new = [writers for writers in others if writers not in self._partners]
        if new:  # another set, as threads may be walking over this one
            self._partners = WeakSet([*self._partners, *new])

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
        """The rows of each region, and the region's writer. Claims the regions that this writer
        lacks, in its turn, and creates those that are not there."""
        self._opener.table.check_base()
        spec = self._opener.table.spec
        if self._router is None or spec is None:
            if self._lacks(()):
                self._open_missing({(): {}}, lambda _: [self._opener.manual_claimer(self._manual)])
            return [(self._writers[()], batch)]
        parts = self._router.route(batch)
        if self._turns is not None:
            self._used.update(dict.fromkeys([part.key for part in parts], self._turns.clock()))
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
                # Claim all regions of the call, also of rows that are written: whoever took one
                # takes the others next.
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

    def claim(self, regions: Sequence[tuple[int, RegionValues | None]]) -> list[RegionWriter]:
        """Claim regions, given by spec and values; the writers of all regions that are claimed now.

        Raises UnsupportedError for a region that this writer's rows could not be in.
        """
        spec = self._opener.table.spec
        by_key: dict[RegionKey, RegionValues] = {}
        for spec_id, values in regions:
            if spec is None or spec_id != spec.spec_id or values is None:
                raise UnsupportedError(
                    "a serializable statement claims the regions that it reads, and one of them "
                    "belongs to an earlier region spec, or its values are not known"
                )
            key = tuple(values[name] for name in spec.field_ids)
            by_key[key] = values
        if spec is not None and any(self._lacks(key) for key in by_key):
            self._open_missing(by_key, partial(self._opener.claimers, spec))
        return list(self)

    def are_apart(self, keys: pa.Table, others: pa.Table) -> bool:
        """Whether a key is in another region than the other one at its place."""
        router = self._router
        return router is not None and router.regions(keys) != router.regions(others)

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
        with self.open_lock:
            pass

    # What the calls of other tables use, too, while they hold `open_lock`.

    def is_claimable(self) -> bool:
        """Whether regions of the table may be claimed with its columns."""
        try:
            self._check_open()
            self._opener.table.check_claimable()
        except MemWalError:
            return False
        return True

    def lost(self) -> dict[TableRegion, RegionClaimer]:
        """The regions that rows came for of late and that others have taken over, after a look at
        all of the former."""
        self._check_open()
        since = -inf if self._turns is None else self._turns.recent
        in_use = {key: w for key, w in self._writers.items() if self._used.get(key, -inf) >= since}
        self._probe(writer for writer in in_use.values() if not writer.is_handed_over)
        return {
            (self, key): self._claimers[key]
            for key, writer in in_use.items()
            if writer.is_handed_over
        }

    def note_claimed(self, key: RegionKey, claimer: RegionClaimer, writer: RegionWriter) -> None:
        """Let a writer that has claimed its region take the rows that come for it."""
        # Before it takes rows: readers find these with it.
        before = open_writers.register(self._opener.table.context.identity, writer)
        if before is not None:
            before.taken_over(writer.epoch)
        self._writers[key] = writer
        self._claimers[key] = claimer

    def _lacks(self, key: RegionKey) -> bool:
        return key not in self._writers or self._is_lost(key)

    def _is_lost(self, key: RegionKey) -> bool:
        writer = self._writers.get(key)
        return writer is not None and writer.is_handed_over

    def _open_missing(
        self,
        regions: Mapping[RegionKey, RegionValues],
        claimers_of: Callable[[list[RegionValues]], list[RegionClaimer]],
    ) -> None:
        """Claim those regions of a call that this writer lacks, all of them in one turn, with what
        was lost besides."""
        tables = [self]
        if self._turns is not None and any(self._is_lost(key) for key in regions):
            tables = sorted({self, *self._partners}, key=lambda writers: writers.number)
        with deferred_logs():
            _holding(tables, partial(self._claim_missing, tables, regions, claimers_of))

    def _claim_missing(
        self,
        tables: Sequence[RegionWriters],
        regions: Mapping[RegionKey, RegionValues],
        claimers_of: Callable[[list[RegionValues]], list[RegionClaimer]],
    ) -> None:
        """See `_open_missing`. The caller holds the `open_lock` of all these tables."""
        self._check_open()
        missing = [key for key in regions if self._lacks(key)]
        if not missing:
            return
        new = [key for key in missing if key not in self._claimers]
        contested = len(new) < len(missing)
        # All are looked up before one is created, or they would find each other's; and before
        # the columns are: who claims one after that is seen by its epoch.
        claimers = claimers_of([regions[key] for key in new]) if new else []
        self._opener.table.check_claimable()
        of_call = {key: self._claimers[key] for key in regions if key in self._claimers}
        of_call.update(zip(new, claimers, strict=True))
        try:
            lost = partial(_lost, [t for t in tables if t is self or t.is_claimable()])
            turn = None if self._turns is None else self._turns.begin()
            while lacking := self._lacking(of_call):
                if self._turns is not None and turn is not None:
                    probed = partial(self._lacking, of_call, contested)
                    lacking = self._turns.wait(turn, probed, lost)
                places = sorted(lacking, key=lambda place: lacking[place].order)
                # All who wait begin with the same region, or each would get some of them.
                first = 1 if turn is not None and turn.has_begun else len(places)
                if self._claim({p: lacking[p] for p in places[:first]}, of_call):
                    self._claim({p: lacking[p] for p in places[first:]}, of_call)
                contested = True
        except SourceGoneError:  # others have written a wider type than this writer knows
            self._opener.table.check_claimable()
            raise

    def _lacking(
        self, regions: Mapping[RegionKey, RegionClaimer], probing: bool = False
    ) -> dict[TableRegion, RegionClaimer]:
        """Those of these regions that this writer lacks, after `probing` the others. Raises
        ReopenError if no region may be opened any more."""
        self._check_open()
        if probing:
            self._probe([self._writers[key] for key in regions if not self._lacks(key)])
        return {(self, key): claimer for key, claimer in regions.items() if self._lacks(key)}

    def _probe(self, writers: Iterable[RegionWriter]) -> None:
        map_remote(self._opener.table.context.store.remote, RegionWriter.probe, writers)

    def _claim(
        self, lacking: Mapping[TableRegion, RegionClaimer], of_call: Container[RegionKey]
    ) -> bool:
        """Claim regions, and return whether all are claimed: if writers take turns, those that
        others claim at the same time are left for the next turn. Raises the first other error about
        a region of a call."""
        errors, all_are_claimed = [], True
        claims = outcomes(RegionClaimer.claim, lacking.values(), PARALLEL_REGIONS, all_end=True)
        for (place, claimer), claimed in zip(lacking.items(), claims, strict=True):
            writers, key = place
            is_of_call = writers is self and key in of_call
            if claimed.error is None:
                writers.note_claimed(key, claimer, claimed.get())
            elif isinstance(claimed.error, FencedError) and self._turns is not None:
                all_are_claimed = False
            elif is_of_call or not isinstance(claimed.error, MemWalError):
                errors.append(claimed.error)
        if errors:
            raise errors[0]
        return all_are_claimed


def _holding(tables: Sequence[RegionWriters], call: Callable[[], None]) -> None:
    """Make a call that may open regions of some tables. By nested blocks: an interrupt between two
    steps of an ExitStack would leave a lock behind."""
    if not tables:
        call()
        return
    with tables[0].open_lock:
        _holding(tables[1:], call)


def _lost(tables: Iterable[RegionWriters]) -> dict[TableRegion, RegionClaimer]:
    """What some tables have `lost`; not those whose look fails."""
    lost: dict[TableRegion, RegionClaimer] = {}
    for writers in tables:
        with suppress(MemWalError):
            lost |= writers.lost()
    return lost


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
