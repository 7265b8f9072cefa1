"""One thread calls what all writers of a process want called now and then."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

from memwal_sql.write.ticker import Ticker, Ticks
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


def test_they_are_called_in_time_by_the_clock_given() -> None:
    now = 0.0
    ticker = Ticker(lambda: now)
    ticker._is_running = True  # there is no thread: this one makes the calls
    fast, slow = Bell(), Bell()
    first, second = Ticks(fast.ring, 2.0, ticker), Ticks(slow.ring, 5.0, ticker)
    ended = Ticks(Bell().ring, 1.0, ticker)  # whose object is gone
    gc.collect()
    assert ended.is_over

    def go_on(seconds: float) -> None:
        nonlocal now
        end = now + seconds
        while True:
            while isinstance(due := ticker.first(), Ticks):
                due.tick()
            if now == end or due is None:
                return
            now = min(end, now + due)

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


def test_a_memtable_is_flushed_by_age_without_being_asked(tmp_path: Path) -> None:
    table = Table(tmp_path)
    with table.writer() as writer:
        assert writer._options.memtable_age_s == 60.0
        assert writer._ticks is not None
