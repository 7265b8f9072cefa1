"""Commits what a transaction has staged, if nothing that it rests on was written meanwhile."""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import cast
from uuid import UUID

import pyarrow as pa

from exec_nodes.evolution.differences import differences
from exec_nodes.evolution.project import same_columns
from exec_nodes.keys.keys import key_values
from memwal_sql.errors import ConflictError, FencedError, ReopenError, UnsupportedError
from memwal_sql.read.one_state import places_now
from memwal_sql.state.context import TableContext
from memwal_sql.state.memtable import memtable_schema
from memwal_sql.state.open_writers import live_table_writer
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.records.transactions import (
    TransactionRecord,
    Transactions,
    utc_now,
)
from memwal_sql.transaction.begin import Joined
from memwal_sql.transaction.traces import earlier
from memwal_sql.write.conditional.recent import Cut
from memwal_sql.write.conditional.resolve import key_names
from memwal_sql.write.coordinator import AtomicWrite, Description, Participant
from memwal_sql.write.region_writer import RegionWriter
from memwal_sql.write.table_writer import TableWriter

_SHOWN_KEYS = 10


@dataclass(frozen=True, slots=True)
class _Share:
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


_Part = tuple[Participant[RegionWriter], Cut, bool]
"""A participant, its cut, and whether nothing may have been written to the region after that."""


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
        shares = [share for share in map(self._share, joined) if not share.is_empty]
        if all(share.rows is None for share in shares):
            for share in shares:
                self._check_places(share)
            if self.serializable:
                self._check_regions(())
            return self._without_rows()
        remote = self.home.store.remote
        writers = map_remote(remote, lambda share: share.open_writer(), shares)
        try:
            with ExitStack() as rooms:
                parts: list[_Part] = []
                for share, writer in zip(shares, writers, strict=True):
                    parts += self._parts(share, writer, rooms)
                if self.serializable:
                    self._check_regions({participant.writer.region_id for participant, *_ in parts})
                # Now, as a claim may have settled an earlier attempt.
                attempt = self._attempt(min(p.context.uri for p, *_ in parts))
                if isinstance(attempt, TransactionRecord):
                    raise self._came_second()
                return self._land(parts, replace(self.description, id=attempt))
        except FencedError as error:
            if not all(writer.takes_turns for writer in writers):
                raise
            raise ConflictError(
                "regions of the transaction were taken over since it began: nothing was written, "
                "run it again"
            ) from error

    def _attempt(self, home: str) -> TransactionRecord | str | None:
        """An id of which the table that is to have the record has none. The record *committed* of
        an earlier attempt is in any of the tables: it may have written others of them."""
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

    def _land(self, parts: Sequence[_Part], description: Description) -> TransactionRecord:
        participants = [participant for participant, _, _ in parts]
        with ExitStack() as orders:
            for participant in sorted(participants, key=lambda participant: participant.order):
                orders.enter_context(participant.writer.order)
            for participant, cut, stays in parts:
                self._check(participant, cut, stays=stays)
            write = AtomicWrite(participants, description)
            if not all(participant.writer.durable for participant in participants):
                write.land()  # others may not enqueue meanwhile
        record = write.land()
        if not write.is_record_own:
            raise self._came_second()
        return record

    def _came_second(self) -> ConflictError:
        return ConflictError(
            f"another transaction with the id {self.description.id} was committed since this one "
            "began: nothing of this one was written; run it again, tx.committed then tells"
        )

    def _share(self, joined: Joined) -> _Share:
        rows, scope = joined.inside.staged(), joined.inside.scope
        stays = frozenset(scope.regions_read) if self.serializable else frozenset[UUID]()
        whole = joined.whole or (self.serializable and scope.has_read_all)
        return _Share(joined, rows, stays, whole)

    def _parts(self, share: _Share, writer: TableWriter, rooms: ExitStack) -> list[_Part]:
        joined, rows, stays, whole = share.joined, share.rows, share.stays, share.whole
        routed = {}
        if rows is not None:
            rooms.enter_context(writer.room_for(rows.nbytes))
            routed = dict(writer.route(rows))
        for region, batch in routed.items():
            if not region.fits(batch):
                raise UnsupportedError(
                    f"the {batch.num_rows} rows of the transaction for region {region.region_id} "
                    f"of {joined.table.uri} do not fit into one MemTable: write fewer at once, or "
                    "open a writer with larger ones (memtable_rows, memtable_bytes)"
                )
        of_reads = joined.inside.scope.values_of(stays)
        for region in writer.claim_all() if whole else writer.claim(of_reads):
            if whole or region.region_id in stays:
                routed.setdefault(region, _no_rows(joined))
        return [
            (
                Participant(joined.table.context, region, batch),
                self._cut(joined, region),
                whole or region.region_id in stays,
            )
            for region, batch in routed.items()
        ]

    def _cut(self, joined: Joined, region: RegionWriter) -> Cut:
        """The region's cut from the beginning, or one of now, if nothing was written between."""
        cut = joined.cuts.get(region)
        if cut is not None:
            return cut
        cut = region.open_cut()
        region.flush_wal()  # rows that a buffered writer took before the cut
        end = joined.ends.get(region.region_id, 0)
        # A claim by others may have brought rows that were never in a log.
        if region.epoch > joined.epochs.get(region.region_id, 0) + 1:
            raise self._written(joined, region.region_id, end, None)
        wal = joined.table.context.wal(region.region_id)
        for position in range(end + 1, region.end + 1):
            entry = wal.read(position)
            if entry is None or (not entry.is_fence and wal.verdict(entry)):
                raise self._written(joined, region.region_id, end, position)
        return cut

    def _check_places(self, share: _Share) -> None:
        """Raise ConflictError where regions that were to stay have been written or claimed since
        the beginning. Nobody need be kept from them: all were as they had been at one time."""
        joined = share.joined
        writer = live_table_writer(joined.table.context.identity)
        if writer is not None:
            writer.sync()  # buffered rows count too
        for region, (end, epoch) in places_now(joined.table.collector).items():
            before = joined.ends.get(region, 0), joined.epochs.get(region, 0)
            if (share.whole or region in share.stays) and (end, epoch) != before:
                raise self._written(joined, region, before[0], end)

    def _check_regions(self, own: Container[UUID]) -> None:
        """Raise ConflictError for a region that was made since the beginning and may have rows of
        the reads. Of two transactions that make regions, one at least finds the other's, as each
        has claimed its `own` in all tables by now."""
        for joined in self.joined:
            reads, base = joined.inside.scope.reads, joined.inside.scope.base
            regions = joined.table.collector.registry.regions(base) if reads else ()
            new = [r for r in regions if r.region_id not in joined.ends and r.region_id not in own]
            for choose in reads:
                for region in choose(new):
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

    def _check(self, participant: Participant[RegionWriter], cut: Cut, *, stays: bool) -> None:
        region, table = participant.writer, participant.context.uri
        region.check_usable()
        keys = participant.rows.select(list(region.recent.primary_key))
        lost = region.recent.written(cut, frozenset(key_values(keys.columns)))
        if not lost and not (stays and region.recent.moved(cut)):
            return
        pairs = zip(key_values(keys.columns), key_names(keys), strict=True)
        names = [name for value, name in pairs if value in lost]
        shown = f"the keys {sorted(map(repr, names))[:_SHOWN_KEYS]}" if names else "rows"
        raise ConflictError(
            f"others wrote {shown} of region {region.region_id} of {table} since the transaction "
            "began: nothing was written, run it again",
            frozenset(names),
            table=table,
            region=region.region_id,
        )


def _no_rows(joined: Joined) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], memtable_schema(joined.inside.schema))
