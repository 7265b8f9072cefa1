"""Commits what a transaction has staged, if nothing that it rests on was written meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import cast
from uuid import UUID

import pyarrow as pa

from exec_nodes.keys.keys import key_values
from memwal_sql.errors import ConflictError, FencedError, UnsupportedError
from memwal_sql.state.context import TableContext
from memwal_sql.state.memtable import memtable_schema
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.records.transactions import (
    TransactionRecord,
    Transactions,
    free_id,
    utc_now,
)
from memwal_sql.storage.retries import with_retries
from memwal_sql.transaction.begin import Joined
from memwal_sql.write.conditional.recent import Cut
from memwal_sql.write.coordinator import AtomicWrite, Description, Participant
from memwal_sql.write.region_writer import RegionWriter
from memwal_sql.write.table_writer import TableWriter

_SHOWN_KEYS = 10


def commit(
    joined: Sequence[Joined],
    home: TableContext,
    description: Description,
    *,
    serializable: bool,
) -> TransactionRecord:
    """The record of the transaction, or of another one with its id that came first.

    It is tried again where other processes take regions over that this one claims for it. Raises as
    `Transaction.commit`.
    """
    attempt = _Attempt(joined, home, description, serializable=serializable)
    return with_retries(attempt.run, "a transaction", on=_TakenOverError, attempts=20)


class _TakenOverError(FencedError):
    """Others took regions over from writers that may be opened again."""


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
        staged."""
        inside = self.joined.inside
        return cast(TableWriter, self.joined.table.statement_writer(inside.schema))


class _Attempt:
    def __init__(
        self,
        joined: Sequence[Joined],
        home: TableContext,
        description: Description,
        *,
        serializable: bool,
    ) -> None:
        self._joined = joined
        self._home = home
        self._description = description
        self._serializable = serializable

    def run(self) -> TransactionRecord:
        """One attempt, with an id that no other one has."""
        records = Transactions(self._home.store)
        found = free_id(records, self._description.id)
        if isinstance(found, TransactionRecord):
            return found
        description = Description(found, self._description.actor, self._description.operation)
        shares = [share for share in map(self._share, self._joined) if not share.is_empty]
        remote = self._home.store.remote
        writers = map_remote(remote, lambda share: share.open_writer(), shares)
        try:
            with ExitStack() as rooms:
                pairs = zip(shares, writers, strict=True)
                parts = [self._parts(share, writer, rooms) for share, writer in pairs]
                participants = [part for table_parts in parts for part, _, _ in table_parts]
                if not any(part.rows.num_rows for part in participants):
                    return self._without_rows(records, description)
                return self._land(participants, parts, description)
        except FencedError as error:
            if not all(writer.takes_turns for writer in writers):
                raise
            raise _TakenOverError(str(error)) from error

    def _without_rows(self, records: Transactions, description: Description) -> TransactionRecord:
        if description.id is None:
            return TransactionRecord("", True, utc_now())
        return records.commit(description.id, (), description.actor, description.operation)

    def _land(
        self,
        participants: list[Participant[RegionWriter]],
        parts: Sequence[Sequence[tuple[Participant[RegionWriter], Cut, bool]]],
        description: Description,
    ) -> TransactionRecord:
        with ExitStack() as orders:
            for participant in sorted(participants, key=lambda participant: participant.order):
                orders.enter_context(participant.writer.order)
            for table_parts in parts:
                for participant, cut, stays in table_parts:
                    self._check(participant, cut, stays=stays)
            write = AtomicWrite(participants, description, self._home)
            if not all(participant.writer.durable for participant in participants):
                return write.land()  # others may not enqueue meanwhile
        return write.land()

    def _share(self, joined: Joined) -> _Share:
        rows, scope = joined.inside.staged(), joined.inside.scope
        stays = frozenset(scope.regions_read) if self._serializable else frozenset[UUID]()
        whole = joined.whole or (self._serializable and scope.has_read_all)
        return _Share(joined, rows, stays, whole)

    def _parts(
        self, share: _Share, writer: TableWriter, rooms: ExitStack
    ) -> list[tuple[Participant[RegionWriter], Cut, bool]]:
        """The participants of a table, each with a cut, and whether nothing may have been written
        to the region after it."""
        joined, rows, stays, whole = share.joined, share.rows, share.stays, share.whole
        routed = {}
        if rows is not None:
            rooms.enter_context(writer.room_for(rows.nbytes))
            routed = dict(writer.route(rows))
        for region, batch in routed.items():
            if not region.fits(batch):
                raise UnsupportedError(
                    f"the rows of the transaction for region {region.region_id} of "
                    f"{joined.table.uri} do not fit into one MemTable: write fewer at once"
                )
        if whole or stays:
            for region in writer.claim_all():
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
        end = joined.ends.get(region.region_id, 0)
        wal = joined.table.context.wal(region.region_id)
        for position in range(end + 1, region.end + 1):
            entry = wal.read(position)
            if entry is None or (not entry.is_fence and wal.verdict(entry)):
                raise ConflictError(
                    f"region {region.region_id} of {joined.table.uri} was written since the "
                    "transaction began, and this process had not claimed it: nothing was written, "
                    "run it again",
                    table=joined.table.uri,
                    region=region.region_id,
                    expected=end,
                    found=position,
                )
        return cut

    def _check(self, participant: Participant[RegionWriter], cut: Cut, *, stays: bool) -> None:
        region, table = participant.writer, participant.context.uri
        region.check_usable()
        keys = participant.rows.select(list(region.recent.primary_key))
        lost = region.recent.written(cut, frozenset(key_values(keys.columns)))
        if not lost and not (stays and region.recent.moved(cut)):
            return
        shown = f"the keys {sorted(map(repr, lost))[:_SHOWN_KEYS]}" if lost else "rows"
        raise ConflictError(
            f"others wrote {shown} of region {region.region_id} of {table} since the transaction "
            "began: nothing was written, run it again",
            frozenset(key if len(key) > 1 else key[0] for key in lost if isinstance(key, tuple))
            or frozenset(lost),
            table=table,
            region=region.region_id,
        )


def _no_rows(joined: Joined) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], memtable_schema(joined.inside.schema))
