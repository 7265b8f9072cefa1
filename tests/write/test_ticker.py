"""One thread calls what all writers of a process want called now and then."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from functools import partial
from math import inf, nextafter
from pathlib import Path

import pytest

from exec_nodes.base import ticker
from exec_nodes.base.ticker import Ticker, Ticks
from memwal_sql.storage.wal.log import Wal
from memwal_sql.write.region_writer import RegionWriter
from tests.model.waiting import eventually
from tests.write.tables import Table


class Bell:
    """Counts its calls, and is free to raise or to wait in one."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self.calls = 0
        self._then = then

    def ring(self) -> None:
        self.calls += 1
        self._then()


def new_threads(before: list[threading.Thread]) -> list[str]:
    """Those of this test's writers, without those that all calls of the process share."""
    new = [one.name for one in threading.enumerate() if one not in before]
    return [name for name in new if not name.startswith(f"memwal-{os.getpid()}-")]


def test_all_are_called_by_one_thread_which_ends_with_the_last() -> None:
    ticker, names = Ticker(), set[str]()
    bells = [Bell(lambda: names.add(threading.current_thread().name)) for _ in range(50)]
    ticks = [Ticks(bell.ring, 0.001, ticker) for bell in bells]
    eventually(lambda: all(bell.calls > 2 for bell in bells))
    assert names == {"memwal-ticker"}
    for one in ticks:
        one.stop()
    eventually(lambda: not ticker._is_running)
    calls = [bell.calls for bell in bells]
    again = Ticks(bells[0].ring, 0.001, ticker)
    eventually(lambda: bells[0].calls > calls[0])
    again.stop()
    assert [bell.calls for bell in bells[1:]] == calls[1:]


class FakeTime:
    """A clock that a test sets forward, and a ticker that calls by it in the test's thread."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ticker = Ticker(lambda: self.now)
        self.ticker._is_running = True

    def go_on(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            while isinstance(due := self.ticker.first(), Ticks):
                due.tick()
            if self.now == end or due is None:
                return
            self.now = min(end, max(self.now + due, nextafter(self.now, inf)))


def test_they_are_called_in_time_by_the_clock_given() -> None:
    time = FakeTime()
    ticker, go_on = time.ticker, time.go_on
    fast, slow = Bell(), Bell()
    first, second = Ticks(fast.ring, 2.0, ticker), Ticks(slow.ring, 5.0, ticker)
    ended = Ticks(Bell().ring, 1.0, ticker)  # whose object is gone
    gc.collect()
    assert ended.is_over

    go_on(19.0)
    assert (fast.calls, slow.calls) == (9, 3)
    second.wake()
    go_on(0.5)
    assert (fast.calls, slow.calls, second.due) == (9, 4, 24.0)
    go_on(4.5)
    assert (fast.calls, slow.calls) == (12, 5)
    first.stop()
    second.stop()
    assert ticker.first() is None


def test_the_stopped_are_forgotten_before_their_time() -> None:
    """As transactions that end long before their timeout, behind a writer's tick."""
    time = FakeTime()
    bell, ended = Bell(), Bell()
    first = Ticks(bell.ring, 2.0, time.ticker)
    for _ in range(1_000):
        one = Ticks(ended.ring, 3600.0, time.ticker)
        one.stop()
        one.stop()
    assert len(time.ticker._due) < 10
    lasting = [Ticks(bell.ring, 2.0, time.ticker) for _ in range(9)]
    time.go_on(3601.0)
    assert (bell.calls, ended.calls) == (10 * 1800, 0)
    for one in (first, *lasting):
        one.stop()
    assert time.ticker.first() is None


def test_what_fails_is_called_again_and_stops_nobody() -> None:
    ticker = Ticker()
    bells = [Bell(lambda: 1 / 0), Bell()]
    ticks = [Ticks(bell.ring, 0.001, ticker) for bell in bells]
    eventually(lambda: all(bell.calls > 2 for bell in bells))
    for one in ticks:
        one.stop()


def test_stopping_waits_for_a_call_that_is_under_way() -> None:
    begun, may_end = threading.Event(), threading.Event()
    ended: list[bool] = []

    def wait() -> None:
        begun.set()
        may_end.wait(60)
        ended.append(True)

    bell = Bell(wait)
    ticks = Ticks(bell.ring, 0.001, Ticker())
    begun.wait(60)
    stopping = threading.Thread(target=ticks.stop)
    stopping.start()
    assert stopping.is_alive() and not ended
    may_end.set()
    stopping.join(60)
    assert ended == [True] and bell.calls == 1


def test_a_hundred_idle_writers_have_one_thread(tmp_path: Path) -> None:
    before = threading.enumerate()
    tables = [Table(tmp_path / str(number)) for number in range(4)]
    writers = [table.writer(durable=number % 2 > 0) for number in range(25) for table in tables]
    try:
        for writer in writers[:4]:
            writer.upsert({"id": [1], "val": ["a"]})
            writer.flush()
        # The one thread may be there already, as of other writers of the process.
        eventually(lambda: new_threads(before) in ([], ["memwal-ticker"]))
        names = [one.name for one in threading.enumerate()]
        assert "memwal-ticker" in names
    finally:
        for writer in writers:
            writer.close()


@pytest.mark.parametrize("durable", [True, False])
def test_no_writer_that_lives_keeps_rows_beyond_what_its_entries_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    """Beyond that, jobs take its region over. Rows come at any moment between two ticks."""
    time = FakeTime()
    monkeypatch.setattr(ticker, "_ticker", lambda _: time.ticker)
    for age in (0.5, 60.0, 3600.0, 86400.0):
        table = Table(tmp_path / str(age))
        options = {"durable": durable, "wal_flush_interval_s": 1e9, "memtable_age_s": age}
        with table.writer(clock=lambda: time.now, **options) as writer:
            for part in (0.01, 0.74):
                time.go_on(age / 4 * part)
                writer.upsert({"id": [1], "val": ["a"]})
                writer.sync()
                (region,) = writer.region_writers
                entry = Wal(table.store, region.region_id).read(region._wal.last_position)
                assert entry is not None and entry.flushed_within is not None
                written = generation_of(region)
                time.go_on(age * 0.999)
                assert generation_of(region) == written, (age, part)
                time.go_on(entry.flushed_within - age * 0.999)
                eventually(partial(is_beyond, region, written))


def is_beyond(writer: RegionWriter, generation: int) -> bool:
    return generation_of(writer) == generation + 1


def generation_of(writer: RegionWriter) -> int:
    """The generation of the MemTable that takes new rows."""
    return writer._generations.active.memtable.generation
