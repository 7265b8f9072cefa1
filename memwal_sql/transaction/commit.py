"""Commits what a transaction has staged, if nothing that it rests on was written meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import cast
from uuid import UUID

import pyarrow as pa

from exec_nodes.evolution.differences import differences
from exec_nodes.evolution.project import same_columns
from memwal_sql.errors import ConflictError, FencedError, ReopenError
from memwal_sql.read.one_state import places_now
from memwal_sql.state.context import TableContext
from memwal_sql.state.memtable import memtable_schema
from memwal_sql.state.open_writers import Identity, live_table_writer
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.records.transactions import (
    TransactionRecord,
    Transactions,
    utc_now,
)
from memwal_sql.transaction.begin import Joined
from memwal_sql.transaction.traces import earlier
from memwal_sql.write.commit import Share, commit
from memwal_sql.write.conditional.recent import Cut
from memwal_sql.write.coordinator import AtomicWrite, Description, home_of
from memwal_sql.write.region_writer import RegionWriter, carried
from memwal_sql.write.table_writer import TableWriter


@dataclass(frozen=True, slots=True)
class _Staged:
    """What a transaction writes to a table, and where nobody else may have written since it began:
    some regions, or the whole table."""

    joined: Joined
    rows: pa.RecordBatch | None
    stays: frozenset[UUID]
    whole: bool

    @property
    def is_empty(self) -> bool:
        return self.rows is None and not self.stays and not self.whole

    def open_writer(self) -> TableWriter:
        """The table's writer. Raises ReopenError if the columns have changed since the rows were
        staged, also where another column has the name and the type of one that was dropped."""
        inside = self.joined.inside
        writer = cast(TableWriter, self.joined.table.statement_writer(inside.schema))
        before = inside.scope.base.stored
        if not same_columns(writer.columns, before):
            raise ReopenError(
                f"the columns of {self.joined.table.uri} have changed since the transaction began "
                f"({differences(before, writer.columns)}): nothing was written, begin it again"
            )
        return writer


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit of what a transaction has staged in some tables. One that has written nothing has
    its record in `home`, if it has an id."""

    joined: Sequence[Joined]
    home: TableContext
    description: Description
    serializable: bool

    def run(self) -> TransactionRecord:
        """The record of the transaction. Raises as `Transaction.commit`."""
        # Regions are claimed in the same order by all.
        joined = sorted(self.joined, key=lambda joined: joined.table.context.identity)
        parts = [staged for staged in map(self._staged, joined) if not staged.is_empty]
        if all(staged.rows is None for staged in parts):
            for staged in parts:
                self._check_places(staged)
            if self.serializable:
                self._check_regions({})
            return self._without_rows()
        remote = self.home.store.remote
        writers = map_remote(remote, lambda staged: staged.open_writer(), parts)
        for writer in writers:
            writer.take_turns_with(other for other in writers if other is not writer)
        try:
            with ExitStack() as rooms:
                shares: list[Share] = []
                for staged, writer in zip(parts, writers, strict=True):
                    shares += self._shares(staged, writer, rooms)
                self._check_regions(_regions_of(shares))
                # Now, as a claim may have settled an earlier attempt.
                attempt = self._attempt(home_of(share.context for share in shares).uri)
                if isinstance(attempt, TransactionRecord):
                    raise self._came_second()
                return self._land(shares, replace(self.description, id=attempt))
        except FencedError as error:
            if not all(writer.takes_turns for writer in writers):
                raise
            raise _taken_over(parts, writers) from error

    def _attempt(self, home: str) -> TransactionRecord | str | None:
        """An id for this attempt that has no record yet in the home table. The record *committed*
        of an earlier attempt is in any of the tables: it may have written others of them."""
        given = self.description.id
        if given is None:
            return None
        found = earlier((joined.table.context for joined in self.joined), given)
        return found if isinstance(found, TransactionRecord) else found[home]

    def _without_rows(self) -> TransactionRecord:
        described, attempt = self.description, self._attempt(self.home.uri)
        if attempt is None:
            return TransactionRecord("", True, utc_now())
        if isinstance(attempt, TransactionRecord):
            return attempt
        records = Transactions(self.home.store)
        record = records.commit(attempt, (), described.actor, described.operation)
        if not record.committed:
            raise ConflictError(f"transaction {record.id} was aborted meanwhile: run it again")
        return record

    def _land(self, shares: Sequence[Share], description: Description) -> TransactionRecord:
        write = cast(AtomicWrite, commit(shares, description, atomic=True))
        record = write.land()
        if not write.is_record_own:
            raise self._came_second()
        return record

    def _came_second(self) -> ConflictError:
        return ConflictError(
            f"another transaction with the id {self.description.id} was committed since this one "
            "began: nothing of this one was written; run it again, tx.committed then tells"
        )

    def _staged(self, joined: Joined) -> _Staged:
        rows, scope = joined.inside.staged(), joined.inside.scope
        stays = frozenset(scope.regions_read) if self.serializable else frozenset[UUID]()
        whole = joined.whole or (self.serializable and scope.has_read_all)
        return _Staged(joined, rows, stays, whole)

    def _shares(self, staged: _Staged, writer: TableWriter, rooms: ExitStack) -> list[Share]:
        joined, rows, stays, whole = staged.joined, staged.rows, staged.stays, staged.whole
        routed = {}
        if rows is not None:
            rooms.enter_context(writer.room_for(rows.nbytes))
            routed = dict(writer.route(rows))
        of_reads = joined.inside.scope.values_of(stays)
        for region in writer.claim_all() if whole else writer.claim(of_reads):
            if whole or region.region_id in stays:
                routed.setdefault(region, _no_rows(joined))
        return [
            Share(
                joined.table.context,
                region,
                batch,
                self._cut(joined, region),
                whole or region.region_id in stays,
            )
            for region, batch in routed.items()
        ]

    def _cut(self, joined: Joined, region: RegionWriter) -> Cut:
        """The region's cut from the beginning. For a region that this process claims only now, or
        again, one of now, if nobody has written or claimed it in between, or if the rows of others
        are still in memory. Raises ConflictError otherwise."""
        cut = joined.cuts.get(region)
        if cut is not None:
            return cut
        cut = region.open_cut()
        region.flush_wal()  # rows that a buffered writer took before the cut
        end = joined.ends.get(region.region_id, 0)
        position = None
        # A claim by others may have brought rows that were never in a log.
        if region.epoch <= joined.epochs.get(region.region_id, 0) + 1:
            position = self._written_after(joined, region, end)
            if position is None:
                return cut
        cut = carried(joined.cuts, region)
        if cut is None:
            raise self._written(joined, region.region_id, end, position)
        return cut

    def _written_after(self, joined: Joined, region: RegionWriter, end: int) -> int | None:
        """The first position behind `end` that has rows which count, or nothing any more."""
        wal = joined.table.context.wal(region.region_id)
        for position in range(end + 1, region.end + 1):
            entry = wal.read(position)
            if entry is None or (not entry.is_fence and wal.verdict(entry)):
                return position
        return None

    def _check_places(self, staged: _Staged) -> None:
        """Raise ConflictError where regions that were to stay have been written or claimed since
        the beginning. Nobody need be kept from them: all were as they had been at one time."""
        joined = staged.joined
        writer = live_table_writer(joined.table.context.identity)
        if writer is not None:
            writer.sync()  # buffered rows count too
        for region, (end, epoch) in places_now(joined.table.collector).items():
            before = joined.ends.get(region, 0), joined.epochs.get(region, 0)
            if (staged.whole or region in staged.stays) and (end, epoch) != before:
                raise self._written(joined, region, before[0], end)

    def _check_regions(self, own: Mapping[Identity, Iterable[UUID]]) -> None:
        """Raise ConflictError for a region that was made since the beginning in a table that was to
        stay, or that may have rows of serializable reads. Of two transactions that make regions,
        one at least finds the other's, as each has claimed its `own` in all tables by now."""
        for joined in self.joined:
            scope = joined.inside.scope
            reads = scope.reads if self.serializable else []
            if not reads and not joined.whole:
                continue
            regions = joined.table.collector.registry.regions(scope.base)
            known = {*joined.ends, *own.get(joined.table.context.identity, ())}
            new = [region for region in regions if region.region_id not in known]
            if not joined.whole:
                new = [region for choose in reads for region in choose(new)]
            for region in new:
                raise self._written(joined, region.region_id, None, None)

    def _written(
        self, joined: Joined, region: UUID, expected: int | None, position: int | None
    ) -> ConflictError:
        return ConflictError(
            f"region {region} of {joined.table.uri} was written or claimed by others since the "
            "transaction began: nothing was written, run it again",
            table=joined.table.uri,
            region=region,
            expected=expected,
            found=position,
        )


def _taken_over(parts: Sequence[_Staged], writers: Sequence[TableWriter]) -> ConflictError:
    pairs = zip(parts, writers, strict=True)
    lost = (
        (staged.joined.table.uri, region.region_id)
        for staged, writer in pairs
        for region in writer.region_writers
        if region.is_handed_over
    )
    table, region = next(lost, (None, None))
    return ConflictError(
        "regions of the transaction were taken over since it began: nothing was written, run it "
        "again",
        table=table,
        region=region,
    )


def _regions_of(shares: Iterable[Share]) -> dict[Identity, set[UUID]]:
    """By table: regions of two tables have the same ids if their values are the same."""
    regions = defaultdict[Identity, set[UUID]](set)
    for share in shares:
        regions[share.context.identity].add(share.writer.region_id)
    return regions


def _no_rows(joined: Joined) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], memtable_schema(joined.inside.schema))
