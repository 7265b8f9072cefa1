"""Writes over several regions: every reader and every claimant sees all of one or none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import MemWalError, TransactionUnknownError
from memwal_sql.storage.objects.open import ObjectStore, open_store
from memwal_sql.storage.records.transactions import Transactions
from memwal_sql.write.ingest.pieces import Pieces
from tests.model.faults import Fault, FaultyStore, Kind
from tests.model.opened import opened_over
from tests.model.process import Process, as_another_process
from tests.soak import IS_SOAK

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64())])
KEYS = range(16)
TOTAL = 100 * len(KEYS)
RECORDS = "/transactions/"
WAL = "/wal/"


@pytest.fixture
def uri(fast_folder: Path) -> str:
    uri = str(fast_folder / "bank")
    with mw.create_table(uri, SCHEMA, "id", regions="bucket(id, 4)").writer() as writer:
        writer.upsert({"id": KEYS, "v": [100] * len(KEYS)})
    return uri


def rows(uri: str) -> dict[int, int]:
    """What another process reads."""
    with as_another_process():
        read = mw.open_table(uri).scan().read_all()
    return dict(zip(*read.to_pydict().values(), strict=True))


def shifted(by: int) -> dict[str, Any]:
    """Rows of all regions whose sum is the same for any number."""
    return {"id": KEYS, "v": [100 + (by if key % 2 else -by) for key in KEYS]}


def expected(by: int) -> dict[int, int]:
    return dict(zip(*shifted(by).values(), strict=True))


def upsert(writer: mw.TableWriter, by: int) -> None:
    writer.upsert(shifted(by), atomic=True)


def update(writer: mw.TableWriter, by: int) -> None:
    writer.update({"v": f"CASE WHEN id % 2 = 1 THEN {100 + by} ELSE {100 - by} END"})


CALLS: dict[str, Callable[[mw.TableWriter, int], None]] = {
    "upsert": upsert,
    "update": update,
}


def records(uri: str) -> list[Any]:
    home = Transactions(open_store(uri))
    return [home.read(transaction) for transaction in home.ids()]


@pytest.mark.parametrize(("call", "durable"), [("upsert", True), ("update", False)])
def test_a_committed_write_is_read_by_all(uri: str, call: str, durable: bool) -> None:
    table = mw.open_table(uri)
    with table.writer(durable=durable) as writer:
        writer.upsert({"id": [0], "v": [100]})
        CALLS[call](writer, 7)
        assert rows(uri) == expected(7)
        assert dict(zip(*table.scan().read_all().to_pydict().values(), strict=True)) == expected(7)
        writer.upsert({"id": [0], "v": [1]})
        writer.flush()
        assert rows(uri) == expected(7) | {0: 1}
    (record,) = records(uri)
    assert record.committed and len(record.parts) == 4
    assert sum(part.upserts for part in record.parts) == len(KEYS)
    table.merge()
    assert rows(uri) == expected(7) | {0: 1}
    assert not [f for f in table.check().findings if f.severity == "error"]


# A soak has each fault at each intent and at the record, in both calls.
INTENT_FAULTS = (Kind.REFUSED, Kind.TIMEOUT, Kind.LOST_REPLY)
FAULTS = [
    *((WAL, nth, kind) for nth in range(1, 5) for kind in INTENT_FAULTS if IS_SOAK or nth == 3),
    (WAL, 4, Kind.LOST_REPLY),
    (WAL, 1, Kind.REFUSED),
    *((RECORDS, 1, kind) for kind in (*INTENT_FAULTS, Kind.FALSE_EXISTS, Kind.LANDED_EXISTS)),
]


def test_a_stream_of_rows_is_gathered_up_to_the_size_of_a_memtable(uri: str) -> None:
    """However small the pieces are that a stream is otherwise written in."""
    batches = [
        pa.RecordBatch.from_pylist([{"id": key, "v": 7} for key in range(start, start + 4)], SCHEMA)
        for start in range(0, 16, 4)
    ]
    table = mw.open_table(uri)
    with Pieces.set(piece_bytes=64), table.writer(memtable_bytes=1000) as writer:
        read = pa.RecordBatchReader.from_batches(SCHEMA, batches)
        assert writer.upsert(read, atomic=True).atomic
        many = pa.RecordBatchReader.from_batches(SCHEMA, batches * 8)
        with pytest.raises(mw.UnsupportedError, match="memtable_bytes=1000"):
            writer.upsert(many, atomic=True)
    assert rows(uri) == dict.fromkeys(KEYS, 7)


def test_whatever_request_fails_all_regions_agree(uri: str, no_pauses: None) -> None:
    """Every request of the intents and of the record fails once; the next claim settles."""
    state = expected(0)
    cases = product(FAULTS, CALLS) if IS_SOAK else zip(FAULTS, cycle(CALLS), strict=False)
    for by, ((path, nth, kind), call) in enumerate(cases, 1):
        stores: list[FaultyStore] = []

        def faulty(store: ObjectStore, stores: list[FaultyStore] = stores) -> FaultyStore:
            stores.append(FaultyStore(store))
            return stores[-1]

        table = opened_over(uri, faulty)
        writer = table.writer()
        writer.upsert({"id": KEYS, "v": [state[key] for key in KEYS]})  # claims all regions
        fault = Fault("put_if_absent", kind, nth, path)
        for store in stores:
            store.plan.append(fault)
        try:
            CALLS[call](writer, by)
            landed: bool | None = True
        except TransactionUnknownError:
            landed = None
        except MemWalError:
            landed = False
        case = f"{call} {path} {nth} {kind.name}"
        assert fault.fired, case
        seen = rows(uri)
        allowed = (
            [expected(by)] if landed else [state] if landed is False else [state, expected(by)]
        )
        assert seen in allowed, case
        with as_another_process(), mw.open_table(uri).writer() as other:
            other.upsert({"id": KEYS, "v": [seen[key] for key in KEYS]})
            other.flush()
        assert rows(uri) == seen, case
        state = seen
    assert not [f for f in mw.open_table(uri).check().findings if f.severity == "error"]


def test_a_process_that_ends_at_any_request_leaves_all_or_nothing(uri: str) -> None:
    """Four intents and a record are put; a process ends before or after each of them."""
    state = expected(0)
    by = 0
    for nth in range(1, 6):
        for before in (True, False) if IS_SOAK or nth == 5 else (nth % 2 > 0,):
            by += 1
            process = Process(uri)
            writer = process.table.writer()
            writer.upsert({"id": KEYS, "v": [state[key] for key in KEYS]})
            process.switch.kill_at(nth, before=before)
            with suppress(OSError, MemWalError):
                upsert(writer, by)
            process.kill()
            committed = (nth, before) == (5, False)
            if committed:
                state = expected(by)
            case = f"request {nth}, {'before' if before else 'after'}"
            assert rows(uri) == state, case
            for reader in (mw.open_table(uri), process_reading_twice(uri)):
                with as_another_process():
                    assert sum(reader.scan().read_all()["v"].to_pylist()) == TOTAL, case
    assert [record.committed for record in records(uri)].count(True) == 1
    with mw.open_table(uri).writer() as writer:
        writer.upsert({"id": [0], "v": [0]})
        writer.flush()
    assert rows(uri) == state | {0: 0}


def process_reading_twice(uri: str) -> mw.Table:
    """A reader that has met an undecided intent before."""
    table = mw.open_table(uri)
    with as_another_process():
        table.scan().read_all()
    return table
