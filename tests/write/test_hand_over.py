"""Writers that go on after another process has taken their regions over, and who gets them back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Event, Thread
from time import sleep
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.bulk.publish import Publisher
from memwal_sql.errors import FencedError, ReopenError
from memwal_sql.state import open_writers as live
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.wal.log import Wal, WalEntry
from memwal_sql.write import region_opener as claiming
from memwal_sql.write.claim import ReplayedLog, read_log
from memwal_sql.write.region_writer import RegionWriter
from memwal_sql.write.table_writer import TableWriter
from memwal_sql.write.turns import Turns, TurnSeconds
from memwal_sql.write.wal_writer import WalWriter
from planner.regions.factories import bucket, identity
from tests.each import each
from tests.model.process import forks
from tests.soak import SOAK
from tests.write.hand_over_child import KEYS, write
from tests.write.harness import ManualExecutor, Region, make_memtable, upsert
from tests.write.tables import Table

# The followed log


@pytest.fixture(autouse=True)
def turns() -> Iterator[None]:
    """A turn lasts a second."""
    with TurnSeconds.set(local=1.0):
        yield


def _contents(log: ReplayedLog) -> list[Any]:
    """What a claim goes by."""
    replayed = [
        (
            replayed.memtable.generation,
            replayed.memtable.newest_rows().to_pylist(),
            replayed.last_position,
            replayed.entries,
        )
        for replayed in log.replayed.memtables
    ]
    return [log.after, log.end, log.epoch, log.torn, replayed]


@each("seed", range(20 * SOAK))
def test_a_log_that_was_followed_is_the_one_that_is_read_again(seed: int) -> None:
    """By whoever lost the region, with flushes of both writers at any time."""
    random, region = Random(seed), Region()
    flushes = {writer: ManualExecutor() for writer in range(2)}

    def opened(number: int) -> RegionWriter:
        return region.open(executor=flushes[number], memtable_rows=5)

    def work(writer: RegionWriter, number: int) -> None:
        for _ in range(random.randrange(8)):
            match random.randrange(5):
                case 0:
                    writer.seal()
                case 1:
                    flushes[number].run_all()
                case _:
                    keys = random.sample(range(20), random.randint(1, 3))
                    writer.append(upsert(dict.fromkeys(keys, f"{number} {random.random()}")))

    first = opened(0)
    work(first, 0)
    second = opened(1)
    with pytest.raises(FencedError):
        first.append(upsert({1: "fenced"}))
    assert first.is_handed_over
    log: ReplayedLog | None = first.replayed_log(wal := region.wal())
    for _ in range(random.randint(1, 4)):
        assert log is not None
        log.follow(wal)
        work(second, 1)
        if random.randrange(2):
            second = opened(1)
    flushes[0].run_all()  # those of the fenced writer commit nothing
    assert log is not None
    log.follow(wal)
    latest = region.manifest
    log = log.above(latest)
    again = read_log(region.manifests(), wal, latest, make_memtable)
    if log is not None:
        assert _contents(log) == _contents(again)
    assert log is not None or again.after > 0  # without flushes it need not be read again


def test_a_log_is_read_again_where_a_flush_ends_within_a_memtable() -> None:
    region = Region()
    first = region.open()
    first.append(upsert({1: "a"}))
    first.append(upsert({2: "b"}))
    region.open()
    with pytest.raises(FencedError):
        first.append(upsert({3: "c"}))
    log = first.replayed_log(region.wal())
    cut = region.manifests().commit(
        region.manifest, current_generation=2, replay_after_wal_entry_position=2
    )
    assert log.above(cut) is None


# Writers


@pytest.fixture
def other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each writer takes the others for those of another process."""
    monkeypatch.setattr(live, "last_epoch", lambda *_: 0)
    monkeypatch.setattr(live, "register", lambda *_: None)


class Time:
    """A clock that goes on while somebody sleeps, and calls what others do meanwhile."""

    def __init__(self) -> None:
        self.now = 0.0
        self.meanwhile: Callable[[], object] = lambda: None

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path, regions=[bucket("id", 4)])


def _rows(value: str) -> dict[str, list[Any]]:
    return {"id": list(range(KEYS)), "val": [value] * KEYS}


def _writers(table: Table, clock: Time, **options: Any) -> Iterator[TableWriter]:
    while True:
        yield table.writer(clock=clock, sleep=clock.sleep, **options)


@pytest.mark.usefixtures("other_process")
def test_writers_of_two_processes_go_on_after_each_other(table: Table) -> None:
    clock = Time()
    first, second, *_ = (w for w, _ in zip(_writers(table, clock), range(2), strict=False))
    for number in range(5):
        for writer in (first, second):
            before = clock.now
            result = writer.upsert(_rows(f"{number} {writer is first}"))
            assert len(result.positions) == 4
            assert clock.now - before < 0.5
            assert set(table.values().values()) == {f"{number} {writer is first}"}
            writer.sync()
    assert first.usable and second.usable
    first.close()
    second.close()


@pytest.mark.usefixtures("other_process")
def test_a_writer_that_works_is_left_alone_for_a_turn(table: Table) -> None:
    clock, working = Time(), Time()
    first = table.writer(clock=working, sleep=working.sleep)
    second = table.writer(clock=clock, sleep=clock.sleep)
    first.upsert(_rows("first"))
    calls: list[float] = []

    def meanwhile() -> None:
        first.upsert(_rows(f"first {len(calls)}"))
        calls.append(clock.now)

    clock.meanwhile = meanwhile
    second.upsert(_rows("second"))
    assert 1.0 <= clock.now < 1.5
    assert len(calls) > 10 and working.now == 0.0  # it has not waited
    first.upsert(_rows("last"))
    assert 0.125 <= working.now < 0.5  # the second one was quiet
    assert set(table.values().values()) == {"last"}


@pytest.mark.usefixtures("other_process")
def test_the_rows_that_had_landed_before_a_region_was_lost_are_not_written_again(
    tmp_path: Path,
) -> None:
    """A call writes two regions."""
    table, clock = Table(tmp_path, regions=[identity("id")]), Time()
    writer = table.writer(clock=clock, sleep=clock.sleep, memtable_entries=1000)
    thief = table.writer(clock=clock, sleep=clock.sleep)
    writer.upsert({"id": [1, 2], "val": ["a", "a"]})
    thief.upsert({"id": [1], "val": ["thief"]})
    writer.upsert({"id": [1, 2], "val": ["b", "b"]})
    assert table.values() == {1: "b", 2: "b"}
    entries = sorted(manifest.wal_entry_position_last_seen for manifest in table.regions())
    assert len(entries) == 2
    store = table.store
    names = [meta.path for meta in store.list("_mem_wal") if "/wal/" in meta.path]
    # Of region 1: three fences, and the rows a, thief and b; of region 2 a fence, and a and b, and
    # the fence of the claim that took it back, as a call that lost a region probes all.
    assert len(names) == 6 + 3
    writer.close()
    thief.close()


@pytest.mark.usefixtures("other_process")
def test_the_first_rows_of_a_call_that_lost_its_region_are_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that takes several MemTables, and so several entries."""
    table, clock, taken = Table(tmp_path), Time(), list[int]()
    writer = table.writer(clock=clock, sleep=clock.sleep, memtable_rows=2)
    thief = table.writer(clock=clock, sleep=clock.sleep)
    writer.upsert({"id": [9], "val": ["a"]})
    append = WalWriter.append

    def then_taken(*arguments: Any) -> int:
        taken.append(position := append(*arguments))
        if len(taken) == 1:
            thief.upsert({"id": [8], "val": ["thief"]})
        return position

    monkeypatch.setattr(WalWriter, "append", then_taken)
    assert writer.upsert({"id": [1, 2, 3, 4, 5], "val": list("vwxyz")}).rows == 5
    writer.close()
    thief.close()
    (manifest,) = table.regions()
    wal = Wal(table.store, manifest.region_id)
    entries = [wal.read(position) for position in wal.positions()]
    written = [v for e in entries if e and e.batch for v in e.batch["val"].to_pylist()]
    assert sorted(written) == sorted(["a", "thief", *"vwxyz"])


@pytest.mark.usefixtures("other_process")
def test_a_call_that_waits_takes_back_what_its_writer_has_lost_besides(table: Table) -> None:
    """Its next calls need that, and would wait for other turns."""
    clock = Time()
    writer = table.writer(clock=clock, sleep=clock.sleep)
    thief = table.writer(clock=clock, sleep=clock.sleep)
    writer.upsert(_rows("a"))
    thief.upsert(_rows("b"))
    writer.upsert({"id": [1], "val": ["c"]})
    waited = clock.now
    for key in range(KEYS):
        writer.upsert({"id": [key], "val": ["d"]})
    assert clock.now == waited
    # What it has not needed for some turns is left to others.
    thief.upsert(_rows("e"))
    clock.now += 60.0
    writer.upsert({"id": [1], "val": ["f"]})
    epochs = {region.region_id: region.epoch for region in writer.region_writers}
    assert sum(epochs[region.region_id] > region.epoch for region in thief.region_writers) == 1
    writer.close()
    thief.close()


@pytest.mark.usefixtures("other_process")
def test_a_flush_takes_the_regions_back_and_a_sync_does_not(table: Table) -> None:
    clock = Time()
    writer = table.writer(clock=clock, sleep=clock.sleep)
    thief = table.writer(clock=clock, sleep=clock.sleep)
    writer.upsert(_rows("a"))
    thief.upsert(_rows("b"))
    before = clock.now
    writer.sync()
    assert clock.now == before
    writer.flush()
    assert all(manifest.flushed_generations for manifest in table.regions())
    thief.upsert(_rows("c"))
    thief.close()
    writer.close()
    assert set(table.values().values()) == {"c"}


@pytest.mark.usefixtures("other_process")
def test_a_writer_that_waits_can_be_closed(table: Table) -> None:
    clock = Time()
    first = table.writer(clock=clock, sleep=clock.sleep)
    second = table.writer(clock=clock, sleep=clock.sleep)
    first.upsert(_rows("a"))
    closing = Thread(target=second.close)

    def close() -> None:
        if not second.closed:
            closing.start()
            while not second.closed:
                sleep(0.001)

    clock.meanwhile = close
    with pytest.raises(ReopenError, match="this writer is closed"):
        second.upsert(_rows("b"))
    closing.join()
    assert set(table.values().values()) == {"a"}


@pytest.mark.usefixtures("other_process")
def test_a_deadline_ends_a_wait(table: Table) -> None:
    clock = Time()
    first = table.writer(clock=clock, sleep=clock.sleep)
    second = table.writer(clock=clock, sleep=lambda _: None)
    first.upsert(_rows("a"))
    with mw.deadline(0.05), pytest.raises(mw.DeadlineExceededError, match="were not written"):
        second.upsert(_rows("b"))
    first.upsert(_rows("c"))


@pytest.mark.usefixtures("other_process")
def test_a_deadline_ends_a_wait_for_another_call_that_waits_for_its_turn(tmp_path: Path) -> None:
    """A call of the same writer, and the first one of a table that is written with it."""
    clock, tables = Time(), []
    for name in ("accounts", "journal"):
        (folder := tmp_path / name).mkdir()
        tables.append(Table(folder, regions=[bucket("id", 4)]))
    other = tables[0].writer(clock=clock, sleep=clock.sleep)
    waits, ends = Event(), Event()

    def sleep(_: float) -> None:
        waits.set()
        ends.wait()

    accounts, journal = (table.writer(clock=clock, sleep=sleep) for table in tables)
    accounts.take_turns_with([journal])
    accounts.upsert(_rows("a"))
    other.upsert(_rows("b"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(accounts.upsert, _rows("c"))
        waits.wait()
        for writer in (accounts, journal):
            with mw.deadline(0.05), pytest.raises(mw.DeadlineExceededError, match="not written"):
                writer.upsert(_rows("d"))
        clock.now += 10
        ends.set()
        assert waiting.result().rows == KEYS
    journal.upsert(_rows("d"))
    for writer in (accounts, journal, other):
        writer.close()


def test_a_process_never_waits_for_itself(tmp_path: Path) -> None:
    """Nor for a writer that it has closed, nor for its own flushes."""
    schema = pa.schema({"id": pa.int64(), "n": pa.int64()})
    table = mw.create_table(str(tmp_path / "t"), schema, "id")
    with TurnSeconds.set(local=1e6), mw.deadline(60):
        with table.writer() as writer:
            writer.upsert([{"id": 1, "n": 2}])
            mw.open_table(table.uri).writer().upsert([{"id": 1, "n": 3}])
            writer.upsert([{"id": 1, "n": 4}])
        table.flush()
        with table.writer() as writer:
            writer.upsert([{"id": 1, "n": 5}])
    assert table.to_arrow().to_pylist() == [{"id": 1, "n": 5}]


def test_a_writer_with_other_columns_does_not_take_a_region_back(tmp_path: Path) -> None:
    """Its rows would put nulls into a column that it does not know."""
    uri = str(tmp_path / "t")
    table = mw.create_table(uri, pa.schema({"id": pa.int64(), "n": pa.int64()}), "id")
    with table.writer() as writer:
        writer.upsert([{"id": 1, "n": 2}])
        table.add_columns({"double": "n * 2"})
        with pytest.raises(ReopenError, match="open a new writer"):
            writer.upsert([{"id": 1, "n": 3}])
    assert table.to_arrow().to_pylist() == [{"id": 1, "n": 2, "double": 4}]


@each(
    "change, row",
    [
        (lambda t: t.add_columns(pa.field("m", pa.int64())), {"id": 1, "n": 1, "m": 1}),
        (lambda t: t.set_type("n", pa.int64()), {"id": 1, "n": 2**40}),
    ],
)
def test_a_writer_with_other_columns_flushes_no_rows_of_others(
    tmp_path: Path, change: Callable[[mw.Table], None], row: dict[str, int]
) -> None:
    """It would flush them without their values in a column that it does not know. Nor does a flush
    job that looked at the columns before."""
    uri = str(tmp_path / "t")
    table = mw.create_table(uri, pa.schema({"id": pa.int64(), "n": pa.int32()}), "id")
    older, before = table.writer(), mw.open_table(uri)
    change(table)
    rows = [row]
    with mw.open_table(uri).writer() as writer:
        writer.upsert(rows)
        with pytest.raises(ReopenError, match="open a new writer"):
            older.upsert([{"id": 2, "n": 2}])
        bases = iter([before.tracker.loaded, table.tracker.latest()])
        publisher = Publisher(
            context=table.context, base=lambda: next(bases), find=lambda *_: None, get=table.get
        )
        manifests = [one.manifest for one in table.collector.registry.loaded()]
        with pytest.raises(mw.RetryError, match=r"call this again|read with"):
            publisher.empty_wals(manifests)
    assert table.to_arrow().to_pylist() == rows
    assert table.flush() == 1 and table.to_arrow().to_pylist() == rows


def test_processes_that_write_the_same_regions_lose_no_row_and_get_no_error(
    tmp_path: Path, within: Callable[[Any], Any]
) -> None:
    uri, calls = str(tmp_path / "t"), 40
    schema = pa.schema({"id": pa.int64(), "n": pa.int64()})
    table = mw.create_table(uri, schema, "id", regions=[mw.bucket("id", 4)])
    with table.writer() as writer:
        writer.upsert([{"id": 100, "n": 0}])
    context = forks()
    processes = [within(ProcessPoolExecutor(1, context)) for _ in range(2)]
    made = [pool.submit(write, uri, name, calls) for name, pool in enumerate(processes)]
    acknowledged = [pair for call in made for pair in call.result()]
    rows = {row["id"]: row["n"] for row in table.to_arrow().to_pylist()}
    assert {key: rows[key] for key, _ in acknowledged} == dict(acknowledged)
    assert rows[100] == 2 * calls
    assert table.check().ok


@pytest.mark.usefixtures("other_process")
def test_tables_that_transactions_write_together_are_taken_back_together(tmp_path: Path) -> None:
    clock, tables = Time(), []
    for name in ("accounts", "journal", "alone"):
        (folder := tmp_path / name).mkdir()
        tables.append(Table(folder, regions=[bucket("id", 4)]))
    own, others = (
        [table.writer(clock=clock, sleep=clock.sleep) for table in tables] for _ in range(2)
    )
    own[0].take_turns_with(own[1:2])
    for writers in (own, others):
        for writer in writers:
            writer.upsert(_rows("a"))
    waits = []
    for writer in own:
        before = clock.now
        writer.upsert(_rows("b"))
        waits.append(clock.now > before)
    assert waits == [True, False, True]
    for writer in (*own, *others):
        writer.close()


@pytest.mark.usefixtures("other_process")
def test_who_finds_the_first_region_claimed_by_another_takes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that wait for the same regions would get a part each, and wait for the other part. What
    was followed of the logs by then is kept."""
    clock = Time()
    table = Table(tmp_path, regions=[identity("id")])
    first, second, third = (w for w, _ in zip(_writers(table, clock), range(3), strict=False))
    for writer in (first, second, third):
        writer.upsert({"id": [1, 2], "val": ["a", "a"]})
    wait, quicker = Turns.wait, [lambda: second.upsert({"id": [1, 2], "val": ["b", "b"]})]

    def then_another(*given: Any) -> Any:
        regions = wait(*given)
        if quicker:
            quicker.pop()()
        return regions

    monkeypatch.setattr(Turns, "wait", then_another)
    monkeypatch.setattr(claiming, "read_log", lambda *_: pytest.fail("a log was read again"))
    before = clock.now
    first.upsert({"id": [1, 2], "val": ["c", "c"]})
    assert clock.now - before > 0.125  # the second one had its turn
    fences = [
        [entry.writer_epoch for entry in _entries(table, region) if entry.is_fence]
        for region in table.regions()
    ]
    assert fences == [[1, 2, 3, 4, 5]] * 2
    assert set(table.values().values()) == {"c"}
    for writer in (first, second, third):
        writer.close()


def _entries(table: Table, region: RegionManifest) -> list[WalEntry]:
    wal = Wal(table.store, region.region_id)
    return [entry for position in wal.positions() if (entry := wal.read(position)) is not None]
