"""What a table says of a transaction whose record may be with another one: its intents name the
place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from uuid import UUID

from memwal_sql.errors import MemWalError, NotFoundError, TornEntryError
from memwal_sql.state.context import TableContext
from memwal_sql.state.open_writers import live_writer
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.records.intent import Intent
from memwal_sql.storage.records.transactions import (
    TransactionRecord,
    Transactions,
    attempt_of,
    free_id,
    utc_now,
)
from memwal_sql.storage.region.versions import RegionManifests, region_ids
from memwal_sql.storage.wal.log import WalEntry
from memwal_sql.table import Table


def earlier(tables: Iterable[TableContext], given: str) -> TransactionRecord | dict[str, str]:
    """The record *committed* of an attempt with a given id, which any of some tables may have; else
    the ids for the next attempt, by the URI of the table that has no record of it."""
    stores = {table.uri: table.store for table in tables}
    remote = any(store.remote for store in stores.values())
    found = map_remote(remote, lambda store: free_id(Transactions(store), given), stores.values())
    free = dict[str, str]()
    for uri, record in zip(stores, found, strict=True):
        if isinstance(record, TransactionRecord):
            return record
        free[uri] = record
    return free


def is_known(table: Table, given: str) -> bool:
    """Whether a committed transaction of a given id is among what the last read of a table has met:
    no request."""
    return any(attempt_of(name)[0] == given for name in _names_met(table))


def _names_met(table: Table) -> Iterator[str]:
    identity = table.context.identity
    for reader in table.collector.registry.loaded():
        yield from (name for name, _ in reader.transactions)
        writer = live_writer(identity, reader.region_id)
        if writer is not None:
            with suppress(MemWalError):  # it was stopped: the reader has read the log
                yield from (mark.transaction[0] for mark in writer.tail().marks)


def traced(
    context: TableContext, given: str, *, decide_by: str | None = None
) -> TransactionRecord | None:
    """The record *committed* of a transaction of a given id that has written to a table, else one
    *aborted*; None where nothing in its logs and manifests is of that transaction.

    What is undecided is aborted in the name `decide_by`, if there is one. Reads the whole logs.
    Raises as `Wal.read` and `Verdicts.verdict` do.
    """
    name = attempt_of(given)[0]
    regions = region_ids(context.store)

    def find(region: UUID) -> TransactionRecord | None:
        wal = context.wal(region)
        found = None
        for position in wal.positions():
            with suppress(TornEntryError):
                entry = wal.read(position)
                if entry is not None and entry.intent and attempt_of(entry.intent.id)[0] == name:
                    found = _record(context, region, entry, entry.intent, decide_by) or found
        if found is None or not found.committed:
            with suppress(NotFoundError):  # a region that is being made
                for flushed, _ in RegionManifests(context.store, region).latest().transactions:
                    if attempt_of(flushed)[0] == name:
                        return TransactionRecord(flushed, True, utc_now())
        return found

    records = [r for r in map_remote(context.store.remote, find, regions) if r is not None]
    return next((record for record in records if record.committed), next(iter(records), None))


def _record(
    context: TableContext, region: UUID, entry: WalEntry, intent: Intent, decide_by: str | None
) -> TransactionRecord | None:
    """The record of the transaction of an entry, also one that is gone if the verdict is known."""
    wal = context.wal(region)
    counts = wal.verdict(entry)
    if counts is None and decide_by is not None:
        wal.settle(entry, decide_by)
        counts = wal.verdict(entry)
    record = context.verdicts.record(intent) if counts else None
    return record or (None if counts is None else TransactionRecord(intent.id, counts, utc_now()))
