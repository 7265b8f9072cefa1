"""The writer of one region: what is acknowledged, seen, replayed and refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import Any, NoReturn

import pytest

from memwal_sql.errors import (
    CorruptFileError,
    FencedError,
    OutcomeUnknownError,
    ReopenError,
    WriterFailedError,
)
from memwal_sql.storage.wal.log import encode_entry, encode_fence
from memwal_sql.write.region_writer import RegionWriter
from tests.each import each
from tests.model.faults import Kind
from tests.model.waiting import eventually, reached
from tests.soak import SOAK
from tests.write.harness import ENTRY_SCHEMA, ManualExecutor, Region, Rows, delete, seen, upsert
from tests.write.hooked_store import DOUBTFUL, Call, HookedStore, passing


def test_a_durable_write_is_in_the_wal_when_it_returns() -> None:
    """#7760, #6368: acknowledged before durable."""
    region = Region()
    writer = region.open()
    position = writer.append(upsert({1: "a", 2: "b"}))
    entry = region.wal().read(position)
    assert entry is not None and entry.batch is not None
    assert entry.batch["id"].to_pylist() == [1, 2]
    assert entry.generation == 1 and entry.writer_epoch == writer.epoch
    assert seen(writer) == {1: "a", 2: "b"} == region.rows()


def test_a_row_is_not_seen_before_it_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """#7760: readers of this process and of others agree on what was written."""
    region = Region()
    arrived, go_on = threading.Event(), threading.Event()
    store = HookedStore(region.store)
    writer = region.open(store)

    def hook(operation: str, path: str, call: Call) -> Any:
        arrived.set()
        reached(go_on)
        return call()

    store.hook = hook
    thread = threading.Thread(target=writer.append, args=(upsert({1: "a"}),))
    thread.start()
    reached(arrived)
    found: list[Rows] = []
    waits, wait_for = threading.Event(), writer._changed.wait_for

    def noted(condition: Callable[[], bool]) -> bool:
        waits.set()
        return wait_for(condition)

    monkeypatch.setattr(writer._changed, "wait_for", noted)
    reader = threading.Thread(target=lambda: found.append(seen(writer)))
    reader.start()
    eventually(lambda: waits.is_set() or found)
    early = list(found)  # the entry on its way decides what the reader sees
    go_on.set()
    thread.join()
    reader.join()
    assert not early
    assert found == [{1: "a"}]


@each("durable", [True, False])
@each("seed", range(4 * SOAK))
def test_replay_rebuilds_the_memtables_of_any_writes(seed: int, durable: bool) -> None:
    """Protocol rule 6, whatever waits for one entry when a MemTable is sealed."""
    rng = Random(seed)
    region = Region()
    options = {"durable": durable, "memtable_rows": 9, "wal_flush_bytes": 400}
    writer = region.open(executor=ManualExecutor(), **options)
    for number in range(40):
        what = rng.random()
        if what < 0.15:
            writer.seal()
        elif what < 0.25:
            writer.flush_wal()
        elif what < 0.4:
            writer.append(delete(rng.sample(range(20), 2)))
        else:
            keys = rng.sample(range(20), rng.randint(1, 12))
            writer.append(upsert(dict.fromkeys(keys, f"write {number}")))
    writer.flush_wal()
    held = _contents(writer)
    assert len(held) > 3
    generations = [entry.generation for entry in region.entries() if not entry.is_fence]
    assert generations == sorted(generations)
    for _ in range(2):
        assert _contents(region.open(executor=ManualExecutor(), **options)) == held


def _contents(writer: RegionWriter) -> dict[int, list[Any]]:
    """The rows of each MemTable that has some, in their order."""
    return {
        source.generation: [
            row
            for batch in source.scan(["id", "val", "_tombstone"], [], None)
            for row in batch.to_pylist()
        ]
        for source in writer.tail().memtables
        if source.rows
    }


def test_a_call_larger_than_a_memtable_is_split_into_generations() -> None:
    region = Region()
    writer = region.open(executor=ManualExecutor(), memtable_rows=10)
    writer.append(upsert(dict.fromkeys(range(25), "x")))
    rows = [m.rows for m in writer.tail().memtables]
    assert sum(rows) == 25 and max(rows) <= 10
    assert len(region.rows()) == 25


def test_writers_waiting_for_the_wal_share_one_entry() -> None:
    region = Region()
    started, go_on = threading.Event(), threading.Event()
    armed = False

    def hook(operation: str, path: str, call: Call) -> Any:
        if armed and operation == "put_if_absent" and not started.is_set():
            started.set()
            reached(go_on)
        return call()

    writer = region.open(HookedStore(region.store, hook))
    armed = True
    threads = [
        threading.Thread(target=writer.append, args=(upsert({i: str(i)}),)) for i in range(8)
    ]
    threads[0].start()
    reached(started)
    for thread in threads[1:]:
        thread.start()
    eventually(lambda: writer._pending.last_ticket == 8)
    go_on.set()
    for thread in threads:
        thread.join()
    data = [entry for entry in region.entries() if not entry.is_fence]
    assert [entry.batch.num_rows for entry in data] == [1, 7]
    assert len(seen(writer)) == 8


@pytest.mark.parametrize("answer", DOUBTFUL)
def test_an_append_with_a_doubtful_answer_is_settled_by_its_nonce(
    answer: Kind, no_pauses: None
) -> None:
    """Protocol rules 3 and 5: lost replies, timeouts that landed, 409s that did not."""
    region = Region()
    store = HookedStore(region.store)
    writer = region.open(store)
    store.fault_next_put(answer)
    writer.append(upsert({1: "a"}))
    writer.append(upsert({2: "b"}))
    assert region.rows() == {1: "a", 2: "b"} == seen(writer)
    assert [e.batch.num_rows for e in region.entries() if not e.is_fence] == [1, 1]


@pytest.mark.parametrize("landed", [True, False])
def test_an_append_that_can_not_be_settled_poisons_the_writer(
    landed: bool, no_pauses: None
) -> None:
    """Protocol rule 5; #7547: a writer goes on after its WAL failed."""
    region = Region()
    store = HookedStore(region.store)
    writer = region.open(store)
    writer.append(upsert({1: "a"}))
    first = True

    def dead(operation: str, path: str, call: Call) -> Any:
        nonlocal first
        if first and landed:
            call()
        first = False
        raise_unknown(path)

    store.hook = dead
    with pytest.raises(WriterFailedError, match="unknown whether 1 rows were"):
        writer.append(upsert({2: "b"}))
    store.hook = passing
    with pytest.raises(WriterFailedError, match="these rows were not written"):
        writer.append(upsert({3: "c"}))
    with pytest.raises(WriterFailedError):
        writer.tail()
    again = region.open()
    assert seen(again) == ({1: "a", 2: "b"} if landed else {1: "a"})


def test_everybody_waiting_fails_with_the_writer(no_pauses: None) -> None:
    """#7547: also the writes that were queued behind the failed one."""
    region = Region()
    started, go_on = threading.Event(), threading.Event()
    store = HookedStore(region.store)
    writer = region.open(store)

    def hook(operation: str, path: str, call: Call) -> Any:
        started.set()
        reached(go_on)
        raise_unknown(path)

    store.hook = hook
    errors: list[BaseException] = []

    def write(key: int) -> None:
        try:
            writer.append(upsert({key: "x"}))
        except WriterFailedError as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(key,)) for key in range(4)]
    threads[0].start()
    reached(started)
    for thread in threads[1:]:
        thread.start()
    eventually(lambda: writer._pending.last_ticket == 4)
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(errors) == 4
    assert region.rows() == {}


def test_a_fenced_writer_stops_and_says_who_took_over() -> None:
    """Protocol rule 5."""
    region = Region()
    first = region.open()
    first.append(upsert({1: "a"}))
    second = region.open()
    for _ in range(2):
        with pytest.raises(FencedError, match=r"writer of epoch 2 took over from .* epoch 1"):
            first.append(upsert({1: "zombie"}))
    with pytest.raises(FencedError):
        first.tail()
    assert seen(second) == {1: "a"} == region.rows()


def test_a_zombie_can_not_append_after_wal_entries_were_collected() -> None:
    """slatedb #1622; protocol rules 4 and 21: fences stay, so the zombie's position is taken."""
    region = Region()
    zombie = region.open()
    zombie.append(upsert({1: "a"}))
    writer = region.open()
    writer.append(upsert({1: "b"}))
    writer.seal()
    manifest = region.manifest
    kept = {manifest.replay_after_wal_entry_position, manifest.wal_entry_position_last_seen}
    for entry in region.entries():
        if entry.position <= max(kept) and not entry.is_fence and entry.position not in kept:
            region.store.delete([region.wal().path(entry.position)])
    with pytest.raises(FencedError):
        zombie.append(upsert({1: "zombie"}))
    assert region.rows() == {1: "b"}


def test_a_stray_fence_of_a_claim_that_was_lost_is_passed_over() -> None:
    """Protocol rule 5."""
    region = Region()
    region.open()
    writer = region.open()
    stray = max(region.wal().positions()) + 1
    region.wal().append(stray, encode_fence(writer_epoch=1))
    assert writer.append(upsert({1: "a"})) == stray + 1
    assert seen(region.open()) == {1: "a"}


def test_rows_of_a_lower_epoch_above_the_fence_are_corruption() -> None:
    """Protocol rule 5."""
    region = Region()
    region.open()
    writer = region.open()
    position = max(region.wal().positions()) + 1
    rows = upsert({1: "a"})
    stored = type(rows).from_arrays(rows.columns, schema=ENTRY_SCHEMA)
    region.wal().append(position, encode_entry(stored, writer_epoch=1, generation=1))
    with pytest.raises(CorruptFileError, match="epoch 1 above the fence of epoch 2"):
        writer.append(upsert({2: "b"}))
    with pytest.raises(CorruptFileError, match="epoch 1 above the fence of epoch 2"):
        region.open()


def test_buffered_writes_are_seen_at_once_and_durable_after_flush_wal() -> None:
    region = Region()
    writer = region.open(durable=False)
    assert writer.append(upsert({1: "a"})) == 0
    writer.append(upsert({2: "b"}))
    assert seen(writer) == {1: "a", 2: "b"}
    assert region.rows() == {}
    writer.flush_wal()
    assert region.rows() == {1: "a", 2: "b"}
    assert len([e for e in region.entries() if not e.is_fence]) == 1


@each("options, writes", [({"wal_flush_writes": 2}, 2), ({"wal_flush_bytes": 40}, 3)])
def test_buffered_writes_reach_the_wal_by_size_and_count(
    options: dict[str, int], writes: int
) -> None:
    full: list[bool] = []
    region = Region()
    writer = region.open(durable=False, buffered=full.append, **options)
    for key in range(writes):
        writer.append(upsert({key: "x"}))
    assert full == [False] * (writes - 1) + [True]
    writer.tick()
    assert len(region.rows()) == writes


def test_buffered_writes_reach_the_wal_by_time() -> None:
    now = 0.0
    region = Region()
    writer = region.open(durable=False, wal_flush_interval_s=5.0, clock=lambda: now)
    writer.append(upsert({1: "x"}))
    now = 4.0
    writer.tick()
    assert region.rows() == {}
    now = 6.0
    writer.tick()
    assert region.rows() == {1: "x"}


def test_a_failed_wal_reports_lost_buffered_rows_at_close(no_pauses: None) -> None:
    region = Region()
    store = HookedStore(region.store)
    writer = region.open(store, durable=False)
    writer.append(upsert({1: "a"}))
    store.fault_next_put(Kind.REFUSED)
    with pytest.raises(WriterFailedError, match="1 rows were not written"):
        writer.close()


def test_an_old_memtable_is_sealed_by_age() -> None:
    now = 0.0
    region = Region()
    writer = region.open(memtable_age_s=10.0, clock=lambda: now)
    writer.append(upsert({1: "a"}))
    now = 9.0
    writer.tick()
    assert not region.generations
    now = 11.0
    writer.tick()
    assert len(region.generations) == 1


@each("durable", [True, False])
def test_a_memtable_is_sealed_by_the_number_of_its_entries(durable: bool) -> None:
    """Those of a replay count, too: who reads the region reads them all."""
    region = Region()
    before = region.open(memtable_age_s=None)
    before.append(upsert({0: "x"}))
    writer = region.open(durable=durable, memtable_entries=4, memtable_age_s=None)
    for key in range(1, 11):
        writer.append(upsert({key: "x"}))
        writer.flush_wal()
        left = region.wal().positions()[-1] - region.manifest.replay_after_wal_entry_position
        assert left <= 4 + 1, key  # the fence of the first claim
    writer.seal()
    assert [rows.num_rows for rows in region.generations.values()] == [4, 4, 3]


def test_a_memtable_without_rows_is_not_due() -> None:
    now = 0.0
    writer = Region().open(durable=False, memtable_age_s=10.0, clock=lambda: now)
    now = 20.0
    assert not writer.is_due and not writer.has_buffered
    writer.append(upsert({1: "a"}))
    assert not writer.is_due and writer.has_buffered
    now = 31.0
    assert writer.is_due


def test_a_closed_writer_refuses_writes_and_reads() -> None:
    writer = Region().open()
    writer.close()
    writer.close()
    with pytest.raises(ReopenError, match="closed"):
        writer.append(upsert({1: "a"}))
    with pytest.raises(ReopenError, match="closed"):
        writer.tail()


def raise_unknown(path: str) -> NoReturn:
    raise OutcomeUnknownError(f"{path}: timed out")
