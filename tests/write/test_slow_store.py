"""Writers on a store that is slow, or answers nothing."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest

from memwal_sql.errors import BackPressureError, OutcomeUnknownError, WriterFailedError
from memwal_sql.storage.objects.memory import MemoryStore
from memwal_sql.write.back_pressure import MemoryBudget
from memwal_sql.write.options import WriterOptions, default_unflushed_bytes
from tests.each import each
from tests.write.harness import Region, upsert
from tests.write.hooked_store import Call, HookedStore
from tests.write.tables import Table

_TIMEOUT = 30.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class SlowLink(MemoryStore):
    """Takes so many bytes a second, and nothing of a put that takes longer than its time limit."""

    def __init__(self, clock: Clock, speed: float) -> None:
        super().__init__("memory://slow")
        self.clock, self.speed = clock, speed
        self.sizes: list[int] = []

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if "/wal/" in path:
            self.sizes.append(len(data))
        seconds = len(data) / self.speed
        self.clock.now += min(seconds, _TIMEOUT)
        if seconds > _TIMEOUT:
            raise OutcomeUnknownError(f"{path}: no answer in {_TIMEOUT} s")
        return super().put_if_absent(path, data)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("speed", [40_000.0, 200_000.0, 5e8])
def test_entries_pass_on_a_slow_link_within_its_time_limit(
    speed: float, durable: bool, no_pauses: None
) -> None:
    """8 MiB, the size of an entry that is not bounded, take 42 s at 200,000 bytes a second."""
    clock = Clock()
    store = SlowLink(clock, speed)
    region = Region(store)
    writer = region.open(clock=clock, durable=durable)
    writes = [writer.enqueue(upsert({i: "x" * 50_000})) for i in range(400)]
    for one in writes:
        writer.land(one)
    writer.close()
    assert len(region.rows()) == 400
    assert max(store.sizes) <= _TIMEOUT * speed
    assert len(store.sizes) < 100
    if speed > 1e8:
        assert max(store.sizes) > 6 << 20  # and no smaller than they need be


@pytest.mark.parametrize("on_its_way", [True, False])
def test_back_pressure_ends_in_time_while_the_store_takes_nothing(
    on_its_way: bool, tmp_path: Path
) -> None:
    """The caller waits for room, and not for an entry of others on its way."""
    table, go_on = Table(tmp_path), threading.Event()
    ended: list[bool] = []

    def hook(operation: str, path: str, call: Call) -> Any:
        if operation == "put_if_absent" and ("/wal/" in path or "_gen_" in path) and ready:
            ended.append(go_on.wait(20))
        return call()

    ready: list[bool] = []
    options = {"max_unflushed_bytes": 20_000, "back_pressure_timeout_s": 0.05}
    store = HookedStore(table.store, hook)
    writer = table.writer(store, durable=False, wal_flush_interval_s=1_000, **options)
    writer.upsert({"id": [0], "val": ["claimed"]})
    ready.append(True)
    if on_its_way:
        syncing = threading.Thread(target=writer.sync)
        syncing.start()
    try:
        with pytest.raises(BackPressureError):
            for key in range(1, 100):
                writer.upsert({"id": [key], "val": ["x" * 1_000]})
        assert not ended
    finally:
        go_on.set()
    if on_its_way:
        syncing.join()
    writer.close()
    assert len(table.values()) > 10


def test_rows_of_a_sealed_memtable_are_written_without_their_interval(tmp_path: Path) -> None:
    """A MemTable is flushed once its entries have landed: who waits for room would wait on."""
    table = Table(tmp_path)
    options = {"max_unflushed_bytes": 20_000, "back_pressure_timeout_s": 60}
    with table.writer(durable=False, wal_flush_interval_s=1_000, **options) as writer:
        for key in range(100):
            writer.upsert({"id": [key], "val": ["x" * 1_000]})
    assert len(table.values()) == 100


def test_all_rows_that_are_lost_are_named(no_pauses: None) -> None:
    region = Region()
    store = HookedStore(region.store)
    writer = region.open(store, durable=False, wal_flush_writes=3)
    writer.append(upsert({0: "a"}))
    writer.flush_wal()
    for key in range(1, 8):
        writer.append(upsert({key: "b"}))

    def dead(operation: str, path: str, call: Call) -> Any:
        writer.append(upsert({8: "c"})) if not asked else None
        asked.append(path)
        raise OutcomeUnknownError(f"{path}: no answer")

    asked: list[str] = []
    store.hook = dead
    with pytest.raises(WriterFailedError):
        writer.flush_wal()
    for call in (lambda: writer.append(upsert({9: "d"})), writer.flush_wal, writer.close):
        with pytest.raises(WriterFailedError) as caught:
            call()
        text = str(caught.value)
        unknown, lost = re.search(r"whether (\d+) rows", text), re.search(r"(\d+) buffered", text)
        assert unknown is not None, text
        assert lost is not None, text
        assert int(unknown[1]) + int(lost[1]) == 8
        assert text.count("buffered rows were not written") == 1


def test_an_entry_on_its_way_counts_as_memory(no_pauses: None) -> None:
    region, budget = Region(), MemoryBudget(1 << 30, 1.0)
    store = HookedStore(region.store)
    writer = region.open(store, budget=budget)
    used: list[int] = []

    def hook(operation: str, path: str, call: Call) -> Any:
        used.append(budget.used)
        return call()

    store.hook = hook
    writer.append(upsert({1: "x" * 10_000}))
    assert used[0] > 10_000
    assert 10_000 < budget.used < 15_000


def test_a_flush_counts_as_memory_twice(tmp_path: Path) -> None:
    table = Table(tmp_path)
    used: list[int] = []

    def hook(operation: str, path: str, call: Call) -> Any:
        if "bloom" in path:
            used.append(writer._budget.used)
        return call()

    with table.writer(HookedStore(table.store, hook)) as writer:
        writer.upsert({"id": [1], "val": ["x" * 100_000]})
        assert 100_000 < writer._budget.used < 120_000
        writer.flush()
        assert used[0] > 200_000
        assert writer._budget.used < 1_000


@each("memory, expected", [(1 << 28, 128), (1 << 30, 128), (3 << 29, 192), (1 << 35, 256)])
def test_what_a_writer_holds_follows_the_memory_there_is(memory: int, expected: int) -> None:
    assert default_unflushed_bytes(memory) == expected << 20
    assert WriterOptions(max_unflushed_bytes=7).most_unflushed_bytes == 7
    assert 128 << 20 <= WriterOptions().most_unflushed_bytes <= 256 << 20
