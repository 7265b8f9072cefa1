"""The writers of a table's regions, one each, opened when the first rows for their region come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar
from uuid import UUID

import pyarrow as pa

from exec_nodes.arrow.large_columns import concatenated
from exec_nodes.base.threads import Outcome, outcomes
from memwal_sql.errors import (
    ConflictError,
    FencedError,
    MemWalError,
    UnsupportedError,
    WriterFailedError,
)
from memwal_sql.storage.deadlines import unbounded
from memwal_sql.storage.retries import ATTEMPTS
from memwal_sql.write.claimed_regions import ClaimedRegions
from memwal_sql.write.conditional.recent import Cut
from memwal_sql.write.generations import PendingWrite
from memwal_sql.write.options import PARALLEL_REGIONS
from memwal_sql.write.region_opener import RegionOpener
from memwal_sql.write.region_writer import RegionWriter
from memwal_sql.write.router import RegionKey, RegionValues, Router
from memwal_sql.write.turns import Turns

R = TypeVar("R")


class RegionWriters:
    """Divides rows among the writers of their regions, which it opens, and calls several at once.

    Attributes:
        claimed: the claimed regions.
    """

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
        self.claimed = ClaimedRegions(opener, check_open, turns)
        self._opener = opener
        self._takes_turns = turns is not None and opener.options.durable
        self._manual = region or ""
        self._router = None if opener.table.spec is None else Router(opener.table.spec)

    def __iter__(self) -> Iterator[RegionWriter]:
        """The writers that are open now."""
        return iter(self.claimed)

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

    def claimed_again(self) -> list[RegionWriter]:
        """The writers that are open now, once those of regions that were handed over have claimed
        these in their turn."""
        self.claimed.claim({key: {} for key in self.claimed.keys}, lambda _: [])
        return list(self)

    def in_turn(self, call: Callable[[], R]) -> R:
        """The result of a call that writes nothing if it raises FencedError: if writers take turns,
        it is made again then. Raises ConflictError if others take regions over each time."""
        for _ in range(ATTEMPTS):
            try:
                return call()
            except FencedError as error:
                if not self._takes_turns:
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
            manual = lambda _: [self._opener.manual_claimer(self._manual)]  # noqa: E731
            return [(self.claimed.of_rows({(): {}}, manual)[()], batch)]
        parts = self._router.route(batch)
        writers = self.claimed.of_rows(
            {part.key: part.values for part in parts}, partial(self._opener.claimers, spec)
        )
        return [(writers[part.key], part.rows) for part in parts]

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
        if spec is not None and any(self.claimed.lacks(key) for key in by_key):
            self.claimed.claim(by_key, partial(self._opener.claimers, spec))
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
