"""What others do between two steps of a transaction, or of a read of it. Each test fails without
the rule that it names."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.read.region import RegionReader
from memwal_sql.read.registry import RegionRegistry
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.records.transactions import Transactions
from tests.model.faults import Fault, FaultyStore, Kind
from tests.model.opened import opened_over
from tests.model.process import Process, as_another_process
from tests.transactions.tables import after_look, created, rows, values

RECORD = "/transactions/"


@pytest.fixture
def uri(fast_folder: Path) -> str:
    return created(str(fast_folder / "table"), "bucket(id, 3)")


@pytest.mark.parametrize("flushes", [False, True])
@pytest.mark.parametrize("read_first", [1, 2])
def test_a_read_that_a_transaction_overtakes_between_two_regions_is_whole(
    uri: str, flushes: bool, read_first: int
) -> None:
    """T11, T12: what was looked at too early is looked at again, or the others are cut."""
    reader = mw.open_table(uri)

    def write() -> None:
        with as_another_process(), mw.open_table(uri).writer() as writer:
            writer.upsert(rows(1), atomic=True)
            if flushes:
                writer.flush()

    with as_another_process():
        assert values(reader) == {0}
        with after_look(read_first, write) as looks:
            assert len(values(reader)) == 1
            assert values(reader) == {1}
        assert len(looks) > 3


DAYS = pa.schema(
    [pa.field("day", pa.int64(), False), pa.field("id", pa.int64(), False), ("v", pa.int64())]
)
READS: dict[str, Callable[[mw.Table], list[int]]] = {
    "all": lambda table: table.to_arrow(["v"])["v"].to_pylist(),
    "filtered": lambda table: table.scan(["v"], "v >= 0").read_all()["v"].to_pylist(),
    "of days": lambda table: table.scan(["v"], "day IN (1, 2)").read_all()["v"].to_pylist(),
    "of keys": lambda table: table.get([(1, 1), (2, 1)], ["v"])["v"].to_pylist(),
    "pinned": lambda table: read_pinned(table),
}


def before_a_region_is_read(make: Callable[[], None], _: mw.Table) -> tuple[type, str, Any]:
    begin_read = RegionReader.begin_read

    def read(*args: Any, **named: Any) -> Any:
        make()
        return begin_read(*args, **named)

    return RegionReader, "begin_read", read


def after_regions_are_looked_for(
    make: Callable[[], None], reader: mw.Table
) -> tuple[type, str, Any]:
    """Another thread of this process then reads the region that is there."""
    find = RegionRegistry.find_new_regions

    def looked_for(*args: Any, **named: Any) -> None:
        find(*args, **named)
        make()
        reader.get([(1, 1)])

    return RegionRegistry, "find_new_regions", looked_for


@pytest.mark.parametrize("moment", [before_a_region_is_read, after_regions_are_looked_for])
def test_a_read_that_a_new_region_overtakes_is_whole(
    fast_folder: Path, monkeypatch: pytest.MonkeyPatch, moment: Any
) -> None:
    """A transaction that makes a region while a read is on its way: T11, T12, over each kind of
    read."""
    for number, (name, flushes) in enumerate(product(READS, (False, True))):
        uri, read = str(fast_folder / str(number)), READS[name]
        table = mw.create_table(uri, DAYS, ["day", "id"], regions="identity(day)")
        with table.writer() as writer:
            writer.upsert({"day": [1], "id": [1], "v": [0]})
        calls: list[str] = []

        def make(uri: str = uri, flushes: bool = flushes, calls: list[str] = calls) -> None:
            calls.append(uri)
            if len(calls) == 1:
                with as_another_process(), mw.open_table(uri).writer() as writer:
                    writer.upsert({"day": [1, 2], "id": [1, 1], "v": [1, 1]}, atomic=True)
                    if flushes:
                        writer.flush()

        with as_another_process():
            reader = mw.open_table(uri)
            assert read(reader) == [0]
            with monkeypatch.context() as patched:
                patched.setattr(*moment(make, reader))
                assert read(reader) in ([0], [1, 1]), (name, flushes)
            assert calls and read(reader) == [1, 1], (name, flushes)


def test_a_read_ends_beside_transactions_that_write_other_regions_each_time(
    fast_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regions that the conditions rule out need no further look."""
    table = mw.create_table(str(fast_folder / "t"), DAYS, ["day", "id"], regions="identity(day)")
    writer, days, begin_read, looks = table.writer(), range(40), RegionReader.begin_read, 0
    writer.upsert({"day": days, "id": [1] * 40, "v": [0] * 40})
    with as_another_process():
        reader = mw.open_table(table.uri)
        assert reader.scan(["v"], "day < 1").read_all().num_rows == 1

        def overtaken(*args: Any, **named: Any) -> Any:
            nonlocal looks
            looks += 1
            writer.upsert({"day": [0, looks], "id": [1, 1], "v": [looks, looks]}, atomic=True)
            return begin_read(*args, **named)

        monkeypatch.setattr(RegionReader, "begin_read", overtaken)
        assert reader.scan(["v"], "day < 1").read_all().num_rows == 1
        assert looks <= 2


def read_pinned(table: mw.Table) -> list[int]:
    """The rows of a new checkpoint."""
    name = f"c{uuid4().hex}"
    table.checkpoint(name)
    values: list[int] = table.as_of(checkpoint=name).to_arrow(["v"])["v"].to_pylist()
    return values


@pytest.mark.parametrize("read_first", [1, 2])
def test_a_read_of_two_tables_is_whole_beside_a_read_of_one(uri: str, read_first: int) -> None:
    """Another thread's read has the transaction in one table: it knows nothing of the other one,
    which this read has looked at before."""
    other = created(f"{uri}-other")
    first, second = mw.open_table(uri), mw.open_table(other)

    def write() -> None:
        with mw.transaction(mw.open_table(uri), mw.open_table(other)) as tx:
            for table in ("table", "table-other"):
                tx.upsert(table, rows(1))
        assert values(second) == {1}

    def read() -> set[int]:
        tx = mw.transaction(first, second)
        return {value for table in (first, second) for value in values(tx.table(table))}

    with as_another_process():
        assert read() == {0}
        with after_look(read_first, write):
            assert len(read()) == 1
            assert read() == {1}


@pytest.fixture
def paused(uri: str) -> tuple[mw.Table, Fault]:
    """A table whose next transaction waits before its record is put."""
    fault = Fault("put_if_absent", Kind.PAUSE, path=RECORD)
    return opened_over(uri, lambda store: FaultyStore(store, [fault])), fault


@pytest.mark.parametrize("read_first", [1, 2])
def test_a_read_that_a_record_overtakes_between_two_regions_is_whole(
    uri: str, paused: tuple[mw.Table, Fault], within: Any, read_first: int
) -> None:
    """T10: a tail stops before an intent that is undecided, as the regions looked at next may have
    it committed."""
    table, fault = paused
    pool: Executor = within(ThreadPoolExecutor(1))
    reader = mw.open_table(uri)

    def commit() -> None:
        fault.resume.set()
        writing.result()

    with as_another_process(), table.writer() as writer:
        assert values(reader) == {0}
        writing = pool.submit(writer.upsert, rows(1), atomic=True)
        assert fault.paused.wait(30)
        with after_look(read_first, commit):
            assert len(values(reader)) == 1
            assert values(reader) == {1}


def test_a_claimant_decides_over_an_intent_that_it_finds(
    uri: str, paused: tuple[mw.Table, Fault], within: Any
) -> None:
    """T8: the coordinator that comes later finds the verdict, and has written nothing."""
    table, fault = paused
    pool: Executor = within(ThreadPoolExecutor(1))
    with table.writer(turns=False) as writer:
        writing = pool.submit(writer.upsert, rows(1), atomic=True)
        assert fault.paused.wait(30)
        with as_another_process(), mw.open_table(uri).writer() as other:
            assert values(mw.open_table(uri)) == {0}
            other.upsert({"id": [0], "v": [5]})
        fault.resume.set()
        with pytest.raises(mw.FencedError, match="was aborted by claim of region"):
            writing.result(30)
    with as_another_process():
        assert values(mw.open_table(uri)) == {0, 5}
    (transaction,) = Transactions(open_store(uri)).ids()
    assert mw.outcome(table, id=transaction) == "aborted"


def test_nobody_appends_behind_an_intent_before_its_record_is_there(
    uri: str, paused: tuple[mw.Table, Fault], within: Any
) -> None:
    """T6: a reader elsewhere that finds rows behind an intent takes it for decided."""
    table, fault = paused
    pool: Executor = within(ThreadPoolExecutor(3))
    with table.writer() as writer:
        first = writer.upsert(rows(0))
        writing = pool.submit(writer.upsert, rows(1), atomic=True)
        assert fault.paused.wait(30)
        behind = pool.submit(writer.upsert, {"id": [0], "v": [1]})
        reading = pool.submit(values, table)  # its own readers wait for the verdict
        with as_another_process():
            assert values(mw.open_table(uri)) == {0}
        fault.resume.set()
        positions = writing.result(30).positions
        for region, position in behind.result(30).positions.items():
            assert position > positions[region] > first.positions[region]
        assert len(reading.result(30)) == 1
    with as_another_process():
        assert values(mw.open_table(uri)) == {1}


def test_a_flush_does_not_take_an_intent_that_is_undecided(
    uri: str, paused: tuple[mw.Table, Fault], within: Any
) -> None:
    """T5, and a MemTable that has nothing but an intent on its way is not sealed: it may be given
    up, and would leave a generation without rows."""
    table, fault = paused
    pool: Executor = within(ThreadPoolExecutor(2))
    with table.writer() as writer:
        writer.upsert(rows(0))
        writer.flush()
        writing = pool.submit(writer.upsert, rows(1), atomic=True)
        assert fault.paused.wait(30)
        for region in list(writer.region_writers):
            region.seal()
        fault.resume.set()
        writing.result(30)
        writer.flush()
    with as_another_process():
        assert values(mw.open_table(uri)) == {1}
        with mw.open_table(uri).writer() as other:
            other.upsert(rows(2))
            other.flush()
        assert values(mw.open_table(uri)) == {2}


def test_an_intent_of_an_attempt_that_died_does_not_count_for_the_next_one(uri: str) -> None:
    """An intent counts by its place too: both attempts have the same id."""
    process = Process(uri)
    with mw.transaction(process.table) as tx:  # claims all regions
        tx.upsert("table", rows(0))
    died = mw.transaction(process.table, id="twice")
    died.upsert("table", rows(9))
    intents = len(process.table.snapshot().regions)
    process.switch.kill_at(intents + 1, before=True)  # the record
    with pytest.raises(OSError, match="died before it"):
        died.commit()
    process.kill()
    with mw.transaction(mw.open_table(uri), id="twice") as tx:
        tx.upsert("table", {"id": [1, 2, 3], "v": [7, 7, 7]})
    with as_another_process():
        assert mw.open_table(uri).get([1, 2, 3])["v"].to_pylist() == [7, 7, 7]
        assert values(mw.open_table(uri)) == {0, 7}
