"""The statements of a table's writer, which write rows computed from rows that they read: the first
committer wins.

A statement claims the regions of its keys, opens a cut of each, reads, computes, and commits
(`write/commit`) if none of its keys was written after the cut. Rows whose keys were are read and
computed again while no other call of this writer enqueues rows, so that it ends however often they
are written; the others keep what was computed. So no update of a key is lost; but rows that begin
to meet a condition meanwhile, and rows read for other keys, are not read again. A serializable
statement claims every region that it reads, and reads all again if anything was written there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

import pyarrow as pa

from exec_nodes.arrow.large_columns import concatenated
from memwal_sql.errors import (
    ConflictError,
    FencedError,
    InvalidCallError,
    MemWalError,
    PartlyWrittenError,
    ReopenError,
    RetryError,
    UnsupportedError,
)
from memwal_sql.state.context import TableContext
from memwal_sql.storage.retries import ATTEMPTS
from memwal_sql.telemetry import CONFLICTS
from memwal_sql.write.commit import (
    Entries,
    Lost,
    Share,
    conflict_of,
    enqueued,
    lost_keys,
    transaction_of,
)
from memwal_sql.write.conditional.recent import Cut
from memwal_sql.write.conditional.resolve import Compute, Resolved
from memwal_sql.write.coordinator import AtomicWrite, Description
from memwal_sql.write.options import WriterOptions
from memwal_sql.write.region_writer import RegionWriter, carried, landed_cuts
from memwal_sql.write.region_writers import RegionWriters
from memwal_sql.write.result import DURABLE, WriteResult, reached
from memwal_sql.write.router import RegionValues

SNAPSHOT: Final = "snapshot"
SERIALIZABLE: Final = "serializable"
Isolation = Literal["snapshot", "serializable"]
Cuts = dict[RegionWriter, Cut]
Claim = Callable[[], Sequence[RegionWriter]]
_UNDESCRIBED = Description()


@dataclass(frozen=True, slots=True)
class _Read:
    """What an attempt has read and computed.

    Attributes:
        claim: claims the regions that it had to read, of which there may be more by now.
        moves: whether rows get keys in other regions, so that it must be one transaction.
    """

    shares: Sequence[Share]
    skipped: Sequence[Hashable]
    not_found: int
    claim: Claim = tuple
    moves: bool = False

    def lost(self) -> Lost | None:
        """Its shares whose keys, or regions, others have written since; None if there are none, and
        no region was made that it had to read. The caller holds the `enqueue_lock`."""
        lost = lost_keys(self.shares)
        # Of two statements that make regions, one at least finds the other's, as each has claimed
        # its own by now.
        missed = set(self.claim()) - {share.writer for share in self.shares}
        return lost if lost or missed else None


@dataclass(frozen=True, slots=True)
class Statements:
    """Runs statements, and waits until their writes have landed.

    Attributes:
        make_room: waits until that many bytes may be enqueued.
        enqueue_lock: held while rows are enqueued, by every call of the table's writer.
        regions: the spec and the values of all regions of the table.
        routes: whether a row determines its region; otherwise UnsupportedError.
    """

    context: TableContext
    writers: RegionWriters
    make_room: Callable[[int], None]
    enqueue_lock: AbstractContextManager[object]
    regions: Callable[[], Sequence[tuple[int, RegionValues | None]]]
    routes: bool
    options: WriterOptions

    def over_keys(
        self, keys: pa.RecordBatch, compute: Compute, isolation: str = SNAPSHOT
    ) -> WriteResult:
        """Write the rows that `compute` makes of distinct `keys`, rows in the MemTables' schema of
        which only the key counts. If others wrote some of them meanwhile, it is called again for
        these, or for all if the statement is serializable."""
        self._check_routes()
        if keys.num_rows == 0:
            return WriteResult(0, reached(self.options))
        if isolation == SERIALIZABLE:
            return self._as_a_whole(
                lambda: compute(keys), lambda: [writer for writer, _ in self.writers.route(keys)]
            )

        def read() -> _Read:
            cuts = {writer: writer.open_cut() for writer, _ in self.writers.route(keys)}
            return self._read(compute(keys), cuts)

        return self._run(read, partial(self._lost_again, compute))

    def over_rows(
        self,
        select: Callable[[], Resolved],
        compute: Compute,
        isolation: str,
        description: Description = _UNDESCRIBED,
        *,
        whole: bool = False,
    ) -> WriteResult:
        """As `over_keys`, for the rows that `select` finds. A statement that is read again as a
        `whole`, and a serializable one, computes all rows again."""
        self._check_routes()
        check_isolation(isolation)
        if isolation == SERIALIZABLE or whole:
            claim = self.claim_all if isolation == SERIALIZABLE else tuple
            return self._as_a_whole(select, claim, description)
        again = partial(self._lost_again, compute)
        return self._run(lambda: self._read(*self._selected(select)), again, description)

    def whole_rows(
        self, rows: pa.RecordBatch, description: Description = _UNDESCRIBED, *, atomic: bool = False
    ) -> WriteResult | None:
        """Write whole rows as one transaction. Unless it must be `atomic`, None where one entry
        suffices, or where they can't be one."""

        def land() -> WriteResult | None:
            self.make_room(rows.nbytes)
            shares = [Share(self.context, *routed) for routed in self.writers.route(rows)]
            with self.enqueue_lock:
                transaction = transaction_of(shares, description, atomic=atomic)
            return None if transaction is None else self._land(transaction, _Read(shares, (), 0))

        return self.writers.in_turn(land)

    def is_one_entry(self, rows: pa.RecordBatch) -> bool:
        """Whether whole rows are written by one entry."""
        parts = self.writers.route(rows)
        return len(parts) == 1 and all(writer.fits(of_region) for writer, of_region in parts)

    def claim_all(self) -> list[RegionWriter]:
        """The writers of all regions of the table, which are claimed."""
        return self.writers.claim(self.regions())

    def _check_routes(self) -> None:
        if not self.routes:
            raise UnsupportedError(
                "the regions of this table are manual, and a key read may be in another one "
                "than this writer's: write rows that have all columns, or upsert them with "
                'missing="null"'
            )

    def _run(
        self,
        first: Callable[[], _Read],
        again: Callable[[_Read, Lost], _Read],
        description: Description = _UNDESCRIBED,
    ) -> WriteResult:
        """The result of a statement. If its regions were handed over before it had written
        anything, it reads and computes what others wrote there meanwhile again, or everything if
        nobody knows what that is."""
        read: _Read | None = None

        def run() -> WriteResult:
            nonlocal read
            read = (read and self._carried(read)) or first()
            self.make_room(sum(share.rows.nbytes for share in read.shares))
            for share in read.shares:
                share.key_set  # noqa: B018 (before others wait)
            with self.enqueue_lock:
                # One attempt suffices here, unless what it calls writes, too.
                for _ in range(ATTEMPTS):
                    lost = read.lost()
                    if lost is None:
                        break
                    read = again(read, lost)
                else:
                    CONFLICTS(1, {"table": self.context.store.uri})
                    raise conflict_of(lost) if lost else self._made_regions()
                must_be_atomic = description.must_be_atomic or read.moves
                described = replace(description, must_be_atomic=must_be_atomic)
                writes = enqueued(read.shares, described)
            return self._land(writes, read)

        return self.writers.in_turn(run)

    def _as_a_whole(
        self,
        select: Callable[[], Resolved],
        claim: Claim,
        description: Description = _UNDESCRIBED,
    ) -> WriteResult:
        """Run a statement that computes everything again: if one of its rows was written meanwhile,
        or anything in the regions that it has to `claim`, or if there are more of these."""

        def read() -> _Read:
            stay = claim()
            for writer in stay:
                writer.check_usable()
            found, cuts = self._selected(select)
            for writer in stay:
                if writer not in cuts:  # fenced since
                    writer.check_usable()
            return self._read(found, cuts, stay, claim)

        return self._run(read, lambda *_: read(), description)

    def _selected(self, select: Callable[[], Resolved]) -> tuple[Resolved, Cuts]:
        """The rows that `select` finds, and a cut of each of their regions from before. If a region
        was not claimed when its rows were read, it is claimed, and all rows are read again."""
        while True:
            cuts = landed_cuts(self.writers.begin_cuts())
            found = select()
            new = [w for w, _ in self.writers.route(found.rows) if not _is_covered(cuts, w)]
            for writer in new:
                writer.check_usable()
            if not new:
                return found, cuts

    def _read(
        self,
        found: Resolved,
        cuts: Cuts,
        stay: Sequence[RegionWriter] = (),
        claim: Claim = tuple,
    ) -> _Read:
        routed = dict(self.writers.route(found.rows))
        if not all(_is_covered(cuts, writer) for writer in (*routed, *stay)):
            raise FencedError("regions were handed over since their rows were read")
        none, stays = found.rows.slice(0, 0), frozenset(stay)
        shares = [
            Share(self.context, writer, routed.get(writer, none), cuts[writer], writer in stays)
            for writer in dict.fromkeys((*routed, *stay))
        ]
        moves = found.moved is not None and self.writers.are_apart(*found.moved)
        return _Read(shares, found.skipped, found.not_found, claim, moves)

    def _carried(self, read: _Read) -> _Read | None:
        """What was read before, for the writers that have its regions by now; None if nobody knows
        what others have written there since."""
        rows = concatenated([share.rows for share in read.shares])
        now = [*read.claim(), *(writer for writer, _ in self.writers.route(rows))]
        writers = {writer.region_id: writer for writer in now}
        shares = []
        for share in read.shares:
            writer = writers.get(share.writer.region_id, share.writer)
            cut = None if share.cut is None else carried({share.writer: share.cut}, writer)
            if cut is None:
                return None
            shares.append(share.moved_to(writer, cut))
        return replace(read, shares=shares)

    def _lost_again(self, compute: Compute, before: _Read, lost: Lost) -> _Read:
        """As before, but with the rows of lost keys computed again."""
        keys = frozenset[Hashable]().union(*(of_share for _, of_share in lost))
        rows, rest = zip(*(share.divided(keys) for share in before.shares), strict=True)
        cuts = {share.writer: share.writer.open_cut() for share in rest}
        again = self._read(compute(concatenated(rows)), cuts)
        skipped = [key for key in before.skipped if key not in keys]
        return replace(
            before,
            shares=[*rest, *again.shares],
            skipped=[*skipped, *again.skipped],
            not_found=before.not_found + again.not_found,
        )

    def _made_regions(self) -> ConflictError:
        return ConflictError(
            f"others made regions of {self.context.uri} {ATTEMPTS} times while this statement read "
            "it: nothing was written, run it again"
        )

    def _land(self, writes: Entries | AtomicWrite, read: _Read) -> WriteResult:
        rows = sum(share.rows.num_rows for share in read.shares)
        skipped, not_found = len(read.skipped), read.not_found
        if isinstance(writes, AtomicWrite):
            places = {part.region: part.position for part in writes.land().parts}
            positions = {region: places[region] for region in writes.regions}
            return WriteResult(rows, DURABLE, positions, skipped, not_found)
        landing = {writer: partial(writer.land, of_region) for writer, of_region in writes}
        try:
            positions = self.writers.together(landing)
        except (ReopenError, RetryError) as error:
            if partly := _partly_written(writes, error):
                raise partly from error
            raise
        atomic = sum(len(of_region) for _, of_region in writes) <= 1
        durable = self.options.durable
        positions = positions if durable else {}
        return WriteResult(rows, reached(self.options), positions, skipped, not_found, atomic)


def _is_covered(cuts: Cuts, writer: RegionWriter) -> bool:
    """Whether there is a cut of a writer's region, which becomes the writer's."""
    cut = carried(cuts, writer)
    if cut is not None:
        cuts[writer] = cut
    return cut is not None


def check_isolation(isolation: str) -> None:
    """Raise InvalidCallError for an unknown level of isolation."""
    if isolation not in (SNAPSHOT, SERIALIZABLE):
        raise InvalidCallError(f"isolation={isolation!r} must be {SNAPSHOT!r} or {SERIALIZABLE!r}")


def _partly_written(writes: Entries, error: MemWalError) -> PartlyWrittenError | None:
    """The error to raise for one that came while rows landed; None if no row has landed."""
    regions = tuple(
        writer.region_id for writer, of_region in writes if any(w.position for w in of_region)
    )
    if not regions:
        return None
    return PartlyWrittenError(
        f"{error}; but rows of this call for the regions {[str(region) for region in regions]} are "
        "written: read them back before you repeat the call, which would change them twice",
        regions,
    )
