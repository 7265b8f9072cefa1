"""The claimed regions of a table, each with its writer.

A call claims the regions that it lacks. If writers take turns, it claims them in its turn, together
with what its process has lost in this table and in those that are written with it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from math import inf
from weakref import WeakSet

from exec_nodes.base.threads import BoundedLock, outcomes
from memwal_sql.errors import FencedError, MemWalError, SourceGoneError
from memwal_sql.life_log import deferred_logs
from memwal_sql.state import open_writers
from memwal_sql.storage.deadlines import check_deadline, remaining, unbounded
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.write.options import PARALLEL_REGIONS
from memwal_sql.write.region_opener import RegionClaimer, RegionOpener
from memwal_sql.write.region_writer import RegionWriter
from memwal_sql.write.result import NOT_WRITTEN
from memwal_sql.write.router import RegionKey, RegionValues
from memwal_sql.write.turns import Turns

_numbers = count()
TableRegion = tuple["ClaimedRegions", RegionKey]
"""A region of one of several tables."""
ClaimersOf = Callable[[list[RegionValues]], list[RegionClaimer]]


class ClaimedRegions:
    """The writers of a table's regions by the keys of these. Safe to use from several threads."""

    def __init__(
        self, opener: RegionOpener, check_open: Callable[[], None], turns: Turns | None = None
    ) -> None:
        """
        Args:
            check_open: raises if no region may be claimed any more.
            turns: how to wait before a region is taken over; None: not at all.
        """
        self._opener = opener
        self._check_open = check_open
        self._turns = turns
        self._writers: dict[RegionKey, RegionWriter] = {}
        self._claimers: dict[RegionKey, RegionClaimer] = {}
        self._used: dict[RegionKey, float] = {}  # when rows last came for a region
        self.lock = BoundedLock()  # taken while regions are claimed
        self._partners: WeakSet[ClaimedRegions] = WeakSet()
        self.number = next(_numbers)

    def __iter__(self) -> Iterator[RegionWriter]:
        """The writers that are open now."""
        return iter(list(self._writers.values()))

    @property
    def keys(self) -> list[RegionKey]:
        """The keys of the regions that were claimed."""
        return list(self._writers)

    def take_turns_with(self, others: Iterable[ClaimedRegions]) -> None:
        """Note that calls write regions of other tables together with those of this one: who waits
        for a turn in some of them takes back what was lost in all."""
        new = [regions for regions in others if regions not in self._partners]
        if new:  # another set, as threads may be walking over this one
            self._partners = WeakSet([*self._partners, *new])

    def of_rows(
        self, regions: Mapping[RegionKey, RegionValues], claimers_of: ClaimersOf
    ) -> Mapping[RegionKey, RegionWriter]:
        """The writers of the regions that rows have come for, and of others, after those that this
        table lacked were claimed; see `claim`."""
        if self._turns is not None:
            self._used.update(dict.fromkeys(regions, self._turns.clock()))
        if [key for key in regions if self.lacks(key)]:
            self.claim(regions, claimers_of)
        return self._writers

    def lacks(self, key: RegionKey) -> bool:
        """Whether a region is not claimed, or was handed over."""
        writer = self._writers.get(key)
        return writer is None or writer.is_handed_over

    def claim(self, regions: Mapping[RegionKey, RegionValues], claimers_of: ClaimersOf) -> None:
        """Claim those regions of a call that this table lacks, all of them in one turn, with what
        was lost besides. `claimers_of` makes the claimers of new ones from their values. Raises
        DeadlineExceededError, and what `Turns.wait` and `RegionClaimer.claim` raise."""
        tables = [self]
        if self._turns is not None and any(self._is_lost(key) for key in regions):
            tables = sorted({self, *self._partners}, key=lambda table: table.number)
        with deferred_logs():
            _holding(tables, partial(self._claim_missing, tables, regions, claimers_of))

    def wait(self) -> None:
        """Return when no region is being claimed."""
        with unbounded():
            _holding([self], lambda: None)

    def _is_lost(self, key: RegionKey) -> bool:
        writer = self._writers.get(key)
        return writer is not None and writer.is_handed_over

    def _claim_missing(
        self,
        tables: Sequence[ClaimedRegions],
        regions: Mapping[RegionKey, RegionValues],
        claimers_of: ClaimersOf,
    ) -> None:
        """See `claim`. The caller holds the locks of all these tables."""
        self._check_open()
        missing = [key for key in regions if self.lacks(key)]
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
            lost = partial(_lost_in, [t for t in tables if t is self or t.is_claimable()])
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
            self._probe([self._writers[key] for key in regions if not self.lacks(key)])
        return {(self, key): claimer for key, claimer in regions.items() if self.lacks(key)}

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
            table, key = place
            is_of_call = table is self and key in of_call
            if claimed.error is None:
                table.note_claimed(key, claimer, claimed.get())
            elif isinstance(claimed.error, FencedError) and self._turns is not None:
                all_are_claimed = False
            elif is_of_call or not isinstance(claimed.error, MemWalError):
                errors.append(claimed.error)
        if errors:
            raise errors[0]
        return all_are_claimed

    # What the calls of other tables use, too, while they hold the lock.

    def is_claimable(self) -> bool:
        """Whether regions of the table may be claimed with its columns."""
        try:
            self._check_open()
            self._opener.table.check_claimable()
        except MemWalError:
            return False
        return True

    def lost(self) -> dict[TableRegion, RegionClaimer]:
        """The regions in use that others have taken over. All regions in use are probed first."""
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


def _holding(tables: Sequence[ClaimedRegions], call: Callable[[], None]) -> None:
    """Make a call that may claim regions of some tables. Raises DeadlineExceededError where another
    call, which may wait for its turn, claims some meanwhile."""
    if not tables:
        call()
        return
    lock, holder = tables[0].lock, object()
    try:
        while not lock.take(holder, remaining()):
            check_deadline(NOT_WRITTEN)
        _holding(tables[1:], call)
    finally:
        lock.release(holder)


def _lost_in(tables: Iterable[ClaimedRegions]) -> dict[TableRegion, RegionClaimer]:
    """What some tables have lost; not those whose look fails."""
    lost: dict[TableRegion, RegionClaimer] = {}
    for table in tables:
        with suppress(MemWalError):
            lost |= table.lost()
    return lost
