"""Flushing MemTables: order, watermark, retries, fencing (protocol rule 7)."""

from __future__ import annotations

import random
import threading
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from memwal_sql.errors import (
    CorruptFileError,
    FencedError,
    OutcomeUnknownError,
    StoreUnavailableError,
    TableReplacedError,
    WriterFailedError,
)
from memwal_sql.storage import paths
from memwal_sql.storage.region.manifest import FlushedGeneration
from memwal_sql.storage.retries import ATTEMPTS
from tests.model.faults import Kind
from tests.model.waiting import reached
from tests.soak import SOAK
from tests.write.harness import ManualExecutor, Region, Rows, delete, seen, upsert
from tests.write.hooked_store import DOUBTFUL, Call, Crash, HookedStore, crash_at


def test_generations_written_in_any_order_are_committed_in_order() -> None:
    """Protocol rule 7."""
    for order in ([2, 1, 0], [1, 1, 0], [0, 1, 0], [2, 0, 0]):
        region, executor = Region(), ManualExecutor()
        writer = region.open(executor=executor)
        for key in range(3):
            writer.append(upsert({key: "x"}))
            writer.seal()
        for index in order:
            executor.run(index)
            manifest = region.manifest
            listed = [g.generation for g in manifest.flushed_generations]
            assert listed == list(range(1, len(listed) + 1))
            assert manifest.current_generation == len(listed) + 1
            assert region.rows() == dict.fromkeys(range(3), "x")
        assert len(region.manifest.flushed_generations) == 3
        assert seen(writer) == {}


def test_a_generation_that_is_written_before_an_older_one_waits_for_it() -> None:
    """Protocol rule 7."""
    region, executor = Region(), ManualExecutor()

    def write(id_: UUID, generation: int, rows: pa.Table) -> FlushedGeneration:
        if executor.waiting:
            executor.run()  # the next one, to its end
        return region.write_generation(id_, generation, rows)

    writer = region.open(executor=executor, write=write)
    for key in range(3):
        writer.append(upsert({key: "x"}))
        writer.seal()
    executor.run()
    assert [g.generation for g in region.manifest.flushed_generations] == [1, 2, 3]
    assert list(region.generations) != sorted(region.generations, key=lambda path: path[-1])
    assert seen(writer) == {}


def test_the_replay_position_never_passes_an_unflushed_entry() -> None:
    """#8293: the flush watermark skips an unflushed entry; protocol rule 7."""
    region, executor = Region(), ManualExecutor()
    writer = region.open(executor=executor)
    last_of = {}
    for generation in (1, 2):
        for key in range(3):
            last_of[generation] = writer.append(upsert({10 * generation + key: "x"}))
        writer.seal()
    beyond = writer.append(upsert({99: "active"}))
    executor.run()
    assert region.manifest.replay_after_wal_entry_position == last_of[1]
    executor.run()
    assert region.manifest.replay_after_wal_entry_position == last_of[2] < beyond
    assert seen(region.open()) == {99: "active"}


def test_a_buffered_generation_is_not_flushed_before_its_entries_have_landed() -> None:
    """#8293; protocol rule 7."""
    region, executor = Region(), ManualExecutor()
    writer = region.open(executor=executor, durable=False)
    writer.append(upsert({1: "a"}))
    writer.seal()
    assert not executor.waiting
    writer.append(upsert({2: "b"}))
    writer.flush_wal()
    assert [e.generation for e in region.entries() if not e.is_fence] == [1, 2]
    executor.run_all()
    assert region.manifest.replay_after_wal_entry_position == 2
    assert seen(region.open()) == {2: "b"}


def test_a_memtable_sealed_while_its_entry_is_on_its_way_waits_for_it() -> None:
    """#8293; protocol rule 7."""
    region, executor = Region(), ManualExecutor()
    on_its_way, go_on = threading.Event(), threading.Event()
    store = HookedStore(region.store)
    writer = region.open(store, executor=executor)
    writer.append(upsert({1: "a"}))

    def hook(operation: str, path: str, call: Call) -> Any:
        on_its_way.set()
        reached(go_on)
        return call()

    store.hook = hook
    thread = threading.Thread(target=writer.append, args=(upsert({2: "b"}),))
    thread.start()
    reached(on_its_way)
    writer.seal()
    assert not executor.waiting
    go_on.set()
    thread.join()
    executor.run_all()
    (rows,) = region.generations.values()
    assert rows["id"].to_pylist() == [1, 2]
    assert region.rows() == {1: "a", 2: "b"} and seen(region.open()) == {}


def test_a_fenced_writer_commits_no_generation() -> None:
    """Protocol rule 7: the epoch is read again."""
    region, executor = Region(), ManualExecutor()
    writer = region.open(executor=executor)
    writer.append(upsert({1: "old"}))
    writer.seal()
    successor = region.open()
    successor.append(upsert({1: "new"}))
    executor.run_all()
    assert region.manifest.flushed_generations == ()
    for call in (writer.wait_flushed, writer.tail, lambda: writer.append(upsert({2: "x"}))):
        with pytest.raises(FencedError, match="epoch 2"):
            call()
    assert region.rows() == {1: "new"}


@pytest.mark.parametrize("answer", DOUBTFUL)
def test_a_flush_commit_with_a_doubtful_answer_happens_once(answer: Kind, no_pauses: None) -> None:
    """Protocol rule 3."""
    region, executor = Region(), ManualExecutor()
    store = HookedStore(region.store)
    writer = region.open(store, executor=executor)
    writer.append(upsert({1: "a"}))
    writer.seal()
    store.fault_next_put(answer)
    executor.run_all()
    writer.wait_flushed()
    assert [g.generation for g in region.manifest.flushed_generations] == [1]
    assert region.rows() == {1: "a"}


def test_a_flush_commit_that_landed_unnoticed_is_recognised(no_pauses: None) -> None:
    """Protocol rule 3: the store falls silent after the commit and comes back later."""
    region, executor = Region(), ManualExecutor()
    store = HookedStore(region.store)
    writer = region.open(store, executor=executor)
    writer.append(upsert({1: "a"}))
    writer.seal()
    silent = 0

    def hook(operation: str, path: str, call: Call) -> Any:
        nonlocal silent
        if operation == "put_if_absent" or 0 < silent < 8:
            silent += 1
            call()
            raise OutcomeUnknownError(f"{path}: timed out")
        return call()

    store.hook = hook
    executor.run_all()
    assert silent == 9  # four puts, each read back, and one that tries again
    writer.wait_flushed()
    assert [g.generation for g in region.manifest.flushed_generations] == [1]


def test_a_generation_is_committed_only_as_the_region_s_current_one() -> None:
    """Protocol rule 7: a manifest that somebody moved on is not overwritten."""
    region, executor = Region(), ManualExecutor()
    writer = region.open(executor=executor)
    writer.append(upsert({1: "a"}))
    writer.seal()
    region.manifests().commit(region.manifest, current_generation=5)
    executor.run_all()
    with pytest.raises(WriterFailedError, match="is at generation 5, its writer at 1"):
        writer.wait_flushed()
    assert region.manifest.flushed_generations == ()


def test_a_flush_of_a_region_that_is_gone_says_that_the_table_was_replaced() -> None:
    """Protocol rule 22: its rows are in a WAL that nobody reads."""
    region, executor = Region(), ManualExecutor()
    writer = region.open(executor=executor)
    writer.append(upsert({1: "a"}))
    writer.seal()
    folder = paths.manifest_folder(region.id)
    region.store.delete([meta.path for meta in region.store.list(folder)])
    executor.run_all()
    for call in (writer.wait_flushed, lambda: writer.append(upsert({2: "b"}))):
        with pytest.raises(TableReplacedError, match="is gone"):
            call()


def test_a_flush_that_fails_for_good_stops_the_writer_and_loses_nothing() -> None:
    region = Region()

    def write(region_id: UUID, generation: int, rows: pa.Table) -> FlushedGeneration:
        raise StoreUnavailableError("the disk is full")

    writer = region.open(write=write)
    writer.append(upsert({1: "a"}))
    writer.seal()
    with pytest.raises(WriterFailedError, match=r"generation 1 could not be flushed.*disk is full"):
        writer.append(upsert({2: "b"}))
    with pytest.raises(WriterFailedError, match="safe in the WAL"):
        writer.wait_flushed()
    assert seen(writer) == {1: "a"}  # still right: nobody else writes the region
    assert seen(region.open()) == {1: "a"}


def test_a_crash_at_any_operation_of_the_store_loses_no_acknowledged_row() -> None:
    """Protocol rules 3 to 7: claim, append, flush, commit, each interrupted before and after."""
    for when in ("before", "after"):
        nth = 0
        while True:
            nth += 1
            region = Region()
            region.open().append(upsert({0: "before"}))
            acknowledged: Rows = {0: "before"}
            attempted: Rows = dict(acknowledged)
            try:
                store = HookedStore(region.store, crash_at(nth, when))
                writer = region.open(store, memtable_rows=4)
                for batch in range(5):
                    rows: Rows = {batch * 2 + 1: str(batch), batch * 2 + 2: str(batch)}
                    attempted |= rows
                    writer.append(upsert(rows))
                    acknowledged |= rows
                    writer.check_usable()
            except (Crash, WriterFailedError):
                pass
            else:
                break
            for _ in range(2):
                reopened = region.open()
                held = region.rows()
                assert acknowledged.items() <= held.items() <= attempted.items()
                # A batch is there whole or not at all.
                assert all((key in held) == (key + 1 in held) for key in range(1, 10, 2))
                flushed: Rows = {}
                for generation in region.manifest.flushed_generations:
                    table = region.generations[generation.path]
                    flushed |= dict(
                        zip(table["id"].to_pylist(), table["val"].to_pylist(), strict=True)
                    )
                assert flushed | seen(reopened) == held
        assert nth > 20


@pytest.mark.slow
def test_random_histories_of_writes_flushes_and_reopenings_match_a_dict() -> None:
    """#6767, #7067, #6834, #6653: what is replayed and flushed is what was written."""
    for seed in range(20 * SOAK):
        generator = random.Random(seed)
        region, executor = Region(), ManualExecutor()
        options: dict[str, Any] = {
            "durable": generator.random() < 0.7,
            "indexed": generator.random() < 0.7,
            "memtable_rows": generator.choice([3, 10, 100]),
        }
        writer = region.open(executor=executor, **options)
        held: Rows = {}
        for step in range(40):
            action = generator.random()
            if action < 0.6:
                rows = {generator.randrange(12): f"{seed}.{step}" for _ in range(3)}
                writer.append(upsert(rows))
                held |= rows
            elif action < 0.75 and held:
                key = generator.choice(list(held))
                writer.append(delete([key]))
                del held[key]
            elif action < 0.85:
                writer.seal()
            elif action < 0.95 and executor.waiting:
                executor.run(generator.randrange(len(executor.waiting)))
            else:
                writer.flush_wal()
                assert region.rows() == held
                executor = ManualExecutor()
                writer = region.open(executor=executor, **options)
        writer.flush_wal()
        executor.run_all()
        assert region.rows() == held


@pytest.mark.parametrize("stopped", [False, True])
def test_a_flush_that_others_keep_overtaking_ends_after_one_round_of_attempts(
    stopped: bool, no_pauses: None
) -> None:
    """Retries over conflicts are not multiplied by those of the flush, and they see its end."""
    region, executor = Region(), ManualExecutor()
    puts = 0

    def hook(operation: str, path: str, call: Call) -> Any:
        nonlocal puts
        if operation == "put_if_absent" and "/manifest/" in path and executor.waiting == flushing:
            puts += 1
            latest = region.manifest
            region.manifests().commit(latest, wal_entry_position_last_seen=latest.version)
            if stopped:
                executor.run()  # a later generation, which can't be written
        return call()

    def write(of: UUID, generation: int, rows: pa.Table) -> FlushedGeneration:
        if generation == 2:
            raise CorruptFileError("no")
        return region.write_generation(of, generation, rows)

    flushing: Any = None
    writer = region.open(HookedStore(region.store, hook), executor=executor, write=write)
    for key in (1, 2):
        writer.append(upsert({key: "x"}))
        writer.seal()
    first = executor.waiting.popleft()
    flushing = executor.waiting.copy()
    first()
    with pytest.raises(WriterFailedError):
        writer.wait_flushed()
    assert puts == (1 if stopped else ATTEMPTS)
    assert region.rows() == {1: "x", 2: "x"}
