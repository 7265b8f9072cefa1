"""Tables as they were at a time, between the entries and the record of transactions too."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import Any
from unittest.mock import patch

import pytest

import memwal_sql as mw
from memwal_sql.errors import MemWalError
from memwal_sql.history import moment
from memwal_sql.storage.base.versions import BaseVersion, read_base_version
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.records.transactions import Transactions
from tests.each import each
from tests.model.opened import opened_over
from tests.model.process import ProcessKilledError, as_another_process, forget_writers
from tests.transactions.tables import created, rows, values
from tests.write.hooked_store import Call, HookedStore

START = datetime(2020, 1, 1, tzinfo=UTC).timestamp()
STEP = 60.0


class Clock:
    """Two tables whose files have the times of their puts, a minute from one to the next, and what
    strong readers of another process saw after each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: set[Path] = set()
        self._lock = RLock()
        self.dies_at = ""
        self.seen: list[tuple[set[int], ...]] = []
        self.uris = [created(str(folder / name), regions) for name, regions in _REGIONS.items()]
        for uri in self.uris:
            forget_writers(uri)
        self._tick()
        self.open()

    def open(self) -> None:
        """Handles of a new process."""
        self.tables = [
            opened_over(uri, lambda store: HookedStore(store, self._put)) for uri in self.uris
        ]

    def kill_at(self, path: str, call: Callable[[], object]) -> None:
        """Let the process die in a call, before it puts a file whose path has this text."""
        self.dies_at = path
        with suppress(OSError, MemWalError):
            call()
        for uri in self.uris:
            forget_writers(uri)
        self.dies_at = ""
        self.open()

    def now(self) -> tuple[set[int], ...]:
        """What another process reads of the tables."""
        with as_another_process():
            return tuple(values(mw.open_table(uri)) for uri in self.uris)

    def at(self, step: int) -> datetime:
        return datetime.fromtimestamp(START + step * STEP + STEP / 2, UTC)

    def _put(self, operation: str, path: str, call: Call) -> Any:
        with self._lock:
            if operation == "put_if_absent" and self.dies_at and self.dies_at in path:
                raise ProcessKilledError(path)
            result = call()
            if operation == "put_if_absent":
                self._tick()
        return result

    def _tick(self) -> None:
        time = START + len(self.seen) * STEP
        for path in self._folder.rglob("*"):
            if path.is_file() and path not in self._known:
                os.utime(path, (time, time))
                self._known.add(path)
        self.seen.append(self.now())


_REGIONS = {"a": "bucket(id, 2)", "b": None}


@pytest.fixture(autouse=True)
def _versions_are_older(monkeypatch: pytest.MonkeyPatch) -> None:
    def dated(store: ObjectStore, version: int) -> BaseVersion | None:
        found = read_base_version(store, version)
        return found and replace(found, timestamp=START)

    monkeypatch.setattr(moment, "read_base_version", dated)


@pytest.fixture
def clock(fast_folder: Path) -> Iterator[Clock]:
    clock = Clock(fast_folder)
    yield clock
    for table in clock.tables:
        table.close()


def transfer(clock: Clock, value: int) -> None:
    with mw.transaction(*clock.tables, id=f"t-{value}") as tx:
        for table in clock.tables:
            tx.upsert(table, rows(value))


def test_every_time_reads_what_readers_saw_then(clock: Clock) -> None:
    """All regions and all tables have a transaction from the time of its record on."""
    transfer(clock, 1)
    clock.tables[0].writer().flush()
    transfer(clock, 2)
    clock.kill_at("transactions/", lambda: transfer(clock, 9))
    transfer(clock, 3)  # claims, and so aborts the one before
    assert {0, 1, 2, 3} == {value for seen in clock.seen for table in seen for value in table}
    for step, seen in enumerate(clock.seen):
        assert all(len(table) == 1 for table in seen)
        at = clock.at(step)
        found = tuple(values(mw.open_table(uri, timestamp=at)) for uri in clock.uris)
        assert found == seen, (step, found, seen)


@each("dies", [True, False])
def test_a_restore_to_a_time_is_whole(fast_folder: Path, dies: bool) -> None:
    """Whether the transaction was committed later or never."""
    clock = Clock(fast_folder / str(dies))
    transfer(clock, 1)
    first = len(clock.seen)
    if dies:
        clock.kill_at("transactions/", lambda: transfer(clock, 2))
    else:
        transfer(clock, 2)
    middle = next(step for step in range(first, len(clock.seen)) if clock.seen[step] == ({1}, {1}))
    transfer(clock, 3)
    clock.tables[0].restore(timestamp=clock.at(middle + 1))
    assert clock.now() == ({1}, {3})
    for table in clock.tables:
        table.close()


@each("writes_on", [False, True])
def test_every_time_reads_the_same_once_home_is_dropped(fast_folder: Path, writes_on: bool) -> None:
    """The record that was handed over has the time of the one that it was."""
    clock = Clock(fast_folder / str(writes_on))

    def now() -> datetime:
        return datetime.fromtimestamp(START + len(clock.seen) * STEP, UTC)

    with patch.object(Transactions.__init__, "__defaults__", (now,)):
        transfer(clock, 1)
    if writes_on:
        with clock.tables[1].writer() as writer:
            writer.upsert(rows(2))
    before = [seen[1] for seen in clock.seen]
    for table in clock.tables:
        table.close()
    mw.drop_table(clock.uris[0])
    for step, seen in enumerate(before):
        assert values(mw.open_table(clock.uris[1], timestamp=clock.at(step))) == seen, step


def test_the_past_of_a_table_whose_home_is_gone_is_read(clock: Clock) -> None:
    """Its own log and manifests still say what counted."""
    transfer(clock, 1)
    with clock.tables[1].writer() as writer:
        writer.upsert(rows(2))
    step = len(clock.seen) - 1
    clock.tables[0].close()
    mw.drop_table(clock.uris[0])
    assert values(mw.open_table(clock.uris[1], timestamp=clock.at(step))) == {2}
