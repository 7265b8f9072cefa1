"""Regions that transactions only read: their logs and records stay short."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.maintain.checks.findings import Severity
from memwal_sql.state.memtable import memtable_schema
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.records.transactions import Transactions
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.wal.log import Wal
from memwal_sql.write.coordinator import AtomicWrite, Description, Participant
from tests.maintain.life import collect, create, rows, values
from tests.model.merging import manifests
from tests.model.process import as_another_process, forget_writers
from tests.model.waiting import eventually
from tests.transactions.open_intents import leave_intents

WEEK = 7 * 24 * 3600.0
MOST = 6


@pytest.fixture
def table(fast_folder: Path) -> mw.Table:
    table = create(fast_folder, regions=2)
    with table.writer() as writer:
        writer.upsert(rows(0, 9, 0))
        writer.flush()
    return table


def transact(table: mw.Table, writer: mw.TableWriter, key: int, val: int) -> None:
    """Write one row, in a transaction that every other region takes part in without rows."""
    batch = row(table, key, val)
    routed, empty = dict(writer.route(batch)), batch.slice(0, 0)
    participants = [
        Participant(table.context, region, routed.get(region, empty))
        for region in writer.claim_all()
    ]
    AtomicWrite(participants, Description()).land()


def row(table: mw.Table, key: int, val: int) -> pa.RecordBatch:
    schema = memtable_schema(table.info.schema)
    return pa.RecordBatch.from_pylist([{"id": key, "val": val, "_tombstone": False}], schema)


def read_region(table: mw.Table) -> RegionManifest:
    """The manifest of the region without the key 0."""
    with table.writer() as writer:
        ((region, _),) = writer.route(row(table, 0, 0))
        written = region.region_id
    (manifest,) = (found for id_, found in manifests(table.uri).items() if id_ != written)
    return manifest


def above(table: mw.Table, manifest: RegionManifest) -> int:
    """The number of intents above a manifest."""
    wal = Wal(open_store(table.uri), manifest.region_id)
    entries = (wal.read(p) for p in wal.positions())
    flushed = manifest.replay_after_wal_entry_position
    return sum(e is not None and e.intent is not None and e.position > flushed for e in entries)


@pytest.mark.parametrize(("processes", "durable"), [(1, True), (8, False)])
def test_the_log_stays_short(table: mw.Table, processes: int, durable: bool) -> None:
    region = read_region(table).region_id
    reader, expected = mw.open_table(table.uri), dict.fromkeys(range(10), 0)
    count = 2 * MOST // processes
    for process in range(processes):
        with table.writer(memtable_entries=MOST, durable=durable) as writer:
            for number in range(count):
                val = process * count + number + 1
                transact(table, writer, 0, val)
                expected[0] = val
                with as_another_process():
                    assert values(reader) == expected
                assert values(table) == expected
                eventually(lambda: above(table, manifests(table.uri)[region]) <= MOST)
        forget_writers(table.uri)
    manifest = manifests(table.uri)[region]
    assert manifest.last_transaction == manifest.replay_after_wal_entry_position > 0
    assert manifest.current_generation == 2  # nothing was flushed for it
    with table.writer() as writer:  # rows go on in the generation that follows
        writer.upsert(rows(0, 9, 99))
        writer.flush()
    assert manifests(table.uri)[region].current_generation == 3
    for _ in range(2):
        collect(table, after=WEEK + 60)
    assert len(Transactions(open_store(table.uri)).ids()) <= 1  # native code looks for the last one
    table.merge()
    with as_another_process():
        assert values(mw.open_table(table.uri)) == dict.fromkeys(range(10), 99)
    findings = mw.open_table(table.uri).check()
    assert [f for f in findings if f.severity is not Severity.INFO] == []


def test_a_log_without_rows_is_flushed_by_no_generation(table: mw.Table) -> None:
    with table.writer() as writer:
        transact(table, writer, 0, 1)
    forget_writers(table.uri)
    region = read_region(table).region_id
    forget_writers(table.uri)
    assert mw.open_table(table.uri).flush() == 1
    assert manifests(table.uri)[region].current_generation == 2
    table.publisher().empty_wals(list(manifests(table.uri).values()))
    assert manifests(table.uri)[region].current_generation == 2
    with as_another_process():
        assert values(mw.open_table(table.uri)) == dict.fromkeys(range(10), 0) | {0: 1}


def test_rows_that_were_given_up_are_flushed_once(table: mw.Table) -> None:
    """Who flushes the log of a dead process settles its transaction; then nothing is left."""
    leave_intents(table.uri, 9)
    counts = []
    for _ in range(3):
        forget_writers(table.uri)
        counts.append(mw.open_table(table.uri).flush())
    assert counts == [2, 0, 0]
    with as_another_process():
        assert values(mw.open_table(table.uri)) == dict.fromkeys(range(10), 0)
