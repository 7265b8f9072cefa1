"""Native code and LanceDB claim a region whose log has intents of transactions.

They know no records: an intent with rows is rows to them, whatever became of it. What was
acknowledged stays and is read at once; rows of a refused transaction may appear once they have
flushed them, and `check` says so. An intent of a region that was only read is a fence to them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.maintain.checks.findings import Severity
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.records.intent import Intent
from memwal_sql.storage.records.table import read_record
from memwal_sql.storage.records.transactions import Transactions
from memwal_sql.storage.wal.log import Wal, encode_fence
from tests.interop.lancedb_client import folder, made_by_us, open_handle
from tests.interop.native import native_scan, native_writer
from tests.maintain.life import rows
from tests.model.faults import Fault, FaultyStore, Kind
from tests.model.merging import manifests
from tests.model.opened import opened_over
from tests.model.process import as_another_process, forget_writers
from tests.transactions.open_intents import commit, leave_intents

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("val", pa.int64())])
OLD, ACKED, STAGED, THEIRS = 0, 1, 9, 5
Values = dict[int, int]


class Native:
    """Lance's own writer of the region."""

    def __init__(self, path: Path, region: UUID) -> None:
        self._schema = lance.dataset(folder(path)).schema
        self._writer = native_writer(folder(path), region)

    def write(self, values: Values) -> None:
        columns = {"id": list(values), "val": list(values.values())}
        self._writer.put(pa.table(columns, schema=self._schema))

    def flush(self) -> None:
        self._writer.close()


class LanceDb:
    """A handle of LanceDB, which claims the region of the rows that it is given."""

    def __init__(self, path: Path, region: UUID) -> None:
        self._handle = open_handle(path)

    def write(self, values: Values) -> None:
        self._handle.upsert(values, SCHEMA)

    def flush(self) -> None:
        self._handle.close()


CLAIMANTS: dict[str, Any] = {"native": Native, "LanceDB": LanceDb}


def undecided(uri: str, transaction: str) -> None:
    pass


def aborted(uri: str, transaction: str) -> None:
    Transactions(open_store(uri)).abort(transaction, "a test")


VERDICTS: dict[str, Callable[[str, str], None]] = {
    "committed": commit,
    "aborted": aborted,
    "undecided": undecided,
}


CASES = [*(("native", verdict) for verdict in VERDICTS), ("LanceDB", "undecided")]


@pytest.fixture
def table(tmp_path: Path) -> mw.Table:
    """Two regions, with rows that no transaction touches."""
    table = made_by_us(tmp_path, mw.lance_bucket("id", 2), SCHEMA)
    with table.writer() as writer:
        writer.upsert(rows(0, 9, OLD))
        writer.upsert(rows(20, 29, ACKED))
    forget_writers(table.uri)
    return table


def read(table: mw.Table) -> Values:
    """The rows that another process reads; the same by a scan and by lookups."""
    with as_another_process():
        scanned = dict(zip(*table.to_arrow().to_pydict().values(), strict=True))
        found = dict(zip(*table.get(list(range(40))).to_pydict().values(), strict=True))
    assert found == scanned
    return scanned


def one_region(table: mw.Table) -> tuple[UUID, list[int]]:
    """A region, and those of the keys from 0 to 29 that are in it."""
    region = min(manifests(table.uri))
    wal = Wal(open_store(table.uri), region)
    entries = [wal.read(position) for position in wal.positions()]
    batches = [entry.batch for entry in entries if entry and entry.batch is not None]
    return region, sorted({key for batch in batches for key in batch["id"].to_pylist()})


def found_errors(table: mw.Table) -> list[str]:
    findings = mw.open_table(table.uri).check()
    return [finding.what for finding in findings if finding.severity is not Severity.INFO]


@pytest.mark.parametrize(("client", "verdict"), CASES)
def test_a_claim_of_an_intent_with_rows(
    table: mw.Table, client: str, verdict: str, tmp_path: Path
) -> None:
    claimant = CLAIMANTS[client]
    transaction = leave_intents(table.uri, STAGED)
    VERDICTS[verdict](table.uri, transaction)
    counts = verdict == "committed"
    region, keys = one_region(table)
    first, second = keys[0], keys[-1]
    reader = mw.open_table(table.uri)
    expected = dict.fromkeys(range(10), STAGED if counts else OLD) | dict.fromkeys(range(20, 30), 1)
    assert read(reader) == expected

    theirs = claimant(tmp_path, region)
    for number, key in enumerate((second, first)):  # the second one is also of the transaction
        theirs.write({key: THEIRS + number})
        expected[key] = THEIRS + number
        assert read(reader) == read(mw.open_table(table.uri)) == expected
    assert found_errors(table) == []
    theirs.flush()
    # Here they have flushed the rows of the transaction, in this region alone.
    expected |= {key: STAGED for key in keys if key < 10 and key != first}
    assert read(reader) == read(mw.open_table(table.uri)) == expected
    flushed = native_scan(table.uri).to_pydict()
    assert dict(zip(*flushed.values(), strict=True)) == {key: expected[key] for key in keys}

    theirs = claimant(tmp_path, region)
    theirs.write({first: THEIRS})
    expected[first] = THEIRS
    assert read(reader) == expected
    found = found_errors(table)
    assert bool(found) is not counts, found
    assert all("native code has flushed its" in what for what in found)

    with table.writer() as writer:
        writer.upsert(rows(first, first, 7), atomic=True)
        writer.update({"val": "val + 1"})
        expected[first] = 7
        expected = {key: val + 1 for key, val in expected.items()}
        assert read(reader) == expected
        writer.flush()
    table.merge()
    assert read(reader) == read(mw.open_table(table.uri)) == expected


@pytest.mark.parametrize(("client", "verdict"), CASES)
def test_a_claim_of_a_region_that_was_only_read(
    table: mw.Table, client: str, verdict: str, tmp_path: Path
) -> None:
    claimant = CLAIMANTS[client]
    store, record = open_store(table.uri), read_record(open_store(table.uri))
    assert record is not None
    region, keys = one_region(table)
    wal = Wal(store, region)
    epoch = manifests(table.uri)[region].writer_epoch
    data = encode_fence(writer_epoch=epoch, intent=Intent("only-read", "", record.incarnation))
    assert wal.append(max(wal.positions()) + 1, data).landed
    VERDICTS[verdict](table.uri, "only-read")

    reader = mw.open_table(table.uri)
    expected = dict.fromkeys(range(10), OLD) | dict.fromkeys(range(20, 30), ACKED)
    assert read(reader) == expected
    for flushes in (False, True, True):
        theirs = claimant(tmp_path, region)
        for key in (keys[0], keys[-1]):
            theirs.write({key: THEIRS + flushes})
            expected[key] = THEIRS + flushes
            assert read(reader) == read(mw.open_table(table.uri)) == expected
        if flushes:
            theirs.flush()
        assert read(reader) == expected
    assert found_errors(table) == []
    with table.writer() as writer:
        writer.update({"val": "val + 1"})
        writer.flush()
    assert read(reader) == {key: val + 1 for key, val in expected.items()}
    assert found_errors(table) == []


def test_a_claim_between_the_intents_and_the_record(
    table: mw.Table, tmp_path: Path, within: Any
) -> None:
    """It settles nothing, so the transaction is committed. Rows are behind the intent by then: a
    reader has passed it over, and reads it again."""
    region, keys = one_region(table)
    expected = read(table)
    pause = Fault("put_if_absent", Kind.PAUSE, path="/transactions/")
    ours = opened_over(table.uri, lambda store: FaultyStore(store, [pause]))
    pool: Executor = within(ThreadPoolExecutor(1))
    with ours.writer(turns=False) as writer:
        writing = pool.submit(writer.upsert, rows(0, 9, STAGED), atomic=True)
        assert pause.paused.wait(30)
        theirs = Native(tmp_path, region)
        theirs.write({keys[0]: THEIRS})
        reader = mw.open_table(table.uri)
        assert read(reader) == expected | {keys[0]: THEIRS}
        pause.resume.set()
        writing.result(30)
        expected |= dict.fromkeys(range(10), STAGED) | {keys[0]: THEIRS}
        assert read(reader) == read(mw.open_table(table.uri)) == expected
        with pytest.raises(mw.FencedError):
            writer.upsert(rows(0, 9, OLD), atomic=True)
    theirs.write({keys[-1]: THEIRS})
    expected[keys[-1]] = THEIRS
    assert read(reader) == expected
    theirs.flush()
    assert read(reader) == read(mw.open_table(table.uri)) == expected
    assert found_errors(table) == []
