"""Transactions that a process leaves undecided, for tests of who finds them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from memwal_sql.errors import MemWalError
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.records.table import read_record
from memwal_sql.storage.records.transactions import Part, Transactions
from memwal_sql.storage.wal.log import Wal
from tests.maintain.life import rows
from tests.model.merging import manifests
from tests.model.process import Process


def leave_intents(uri: str, val: int) -> str:
    """Write rows of two regions, by a process that dies before the record; the transaction's id."""
    process = Process(uri)
    writer = process.table.writer()
    writer.upsert(rows(0, 9, 0))
    process.switch.kill_at(3, before=True)
    with suppress(OSError, MemWalError):
        writer.upsert(rows(0, 9, val), atomic=True)
    process.kill()
    (transaction,) = {part.id for part in intents(uri)} - set(Transactions(open_store(uri)).ids())
    return transaction


def intents(uri: str) -> list[Any]:
    """The intents in the logs of a table."""
    found = []
    for region in manifests(uri):
        wal = Wal(open_store(uri), region)
        entries = [wal.read(position) for position in wal.positions()]
        found += [entry.intent for entry in entries if entry and entry.intent]
    return found


def commit(uri: str, transaction: str) -> None:
    """Put the record of a transaction whose intents have landed."""
    store, parts = open_store(uri), []
    record = read_record(store)
    assert record is not None
    for region in manifests(uri):
        wal = Wal(store, region)
        for position in wal.positions():
            entry = wal.read(position)
            if entry is not None and entry.intent and entry.intent.id == transaction:
                count = 0 if entry.batch is None else entry.batch.num_rows
                place = Part("", record.incarnation, region, position, entry.writer_epoch, count, 0)
                parts.append(place)
    assert Transactions(store).commit(transaction, parts).committed
