"""Writers that acknowledged too early, replayed twice, or went on when they had to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lance
import pytest

import memwal_sql as mw
from memwal_sql.errors import FencedError, MemWalError, ReopenError, StoreUnavailableError
from memwal_sql.storage.objects.open import open_store
from tests.model.merging import manifests
from tests.model.opened import opened_over
from tests.model.pairs import count, get, rows, select
from tests.model.process import Process, as_another_process
from tests.model.writing import flush_rows, session_of, upsert_rows

pytestmark = pytest.mark.slow


@pytest.fixture
def table(uri: str) -> Any:
    """Keys 0 to 9 with n = key in the base table, one region."""
    lance.write_dataset(rows(*((i, i) for i in range(10))), uri)
    return mw.enable(uri, primary_key="id")


class _HookedStore:
    """A store whose puts go through a function first."""

    def __init__(self, inner: Any, before_put: Callable[[str], None]) -> None:
        self._inner = inner
        self._before_put = before_put

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._before_put(path)
        return bool(self._inner.put_if_absent(path, data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _open_hooked(uri: str, before_put: Callable[[str], None]) -> Any:
    return opened_over(uri, lambda store: _HookedStore(store, before_put))


def _is_wal(path: str) -> bool:
    return "/wal/" in path


def test_replay_gives_every_row_once_however_often_it_happens(table: Any, uri: str) -> None:
    """#6767: rows replayed from the WAL were there twice after the next flush."""
    expected = {i: i for i in range(10)}
    for n in range(4):
        process = Process(uri)
        writer = process.table.writer()
        writer.upsert(rows((1, n), (20 + n, n)))
        expected |= {1: n, 20 + n: n}
        process.kill()
        assert select(mw.open_table(uri)) == expected
    with table.writer() as writer:
        writer.upsert(rows((99, 99)))
        expected[99] = 99
        assert select(table) == expected and count(table) == len(expected)
        writer.flush()
        assert select(table) == expected and count(table) == len(expected)
    flush_rows(mw.open_table(uri), rows((98, 98)))
    for manifest in manifests(uri).values():
        physical = [generation.rows for generation in manifest.flushed_generations]
        assert physical == [6, 1], "a generation holds rows that were flushed before"


def test_a_durable_write_is_acknowledged_after_its_wal_entry_landed(table: Any, uri: str) -> None:
    """#7760, #6368."""
    gate, arrived = threading.Event(), threading.Event()
    closed = threading.Event()

    def wait_at_wal(path: str) -> None:
        if closed.is_set() and _is_wal(path):
            arrived.set()
            assert gate.wait(30)

    writer = _open_hooked(uri, wait_at_wal).writer()
    writer.upsert(rows((1, 10)))
    closed.set()
    returned = threading.Event()

    def write() -> None:
        result = writer.upsert(rows((1, 11)))
        assert result.reached == "durable"
        returned.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert arrived.wait(30)
    assert not returned.wait(0.2), "acknowledged while its WAL entry was not there"
    with as_another_process():
        assert get(mw.open_table(uri), 1) == {1: 10}
    gate.set()
    assert returned.wait(30)
    thread.join()
    with as_another_process():
        assert get(mw.open_table(uri), 1) == {1: 11}
    closed.clear()
    writer.close()


def test_a_buffered_write_does_not_claim_to_be_durable(table: Any) -> None:
    """#6368."""
    with table.writer(durable=False, wal_flush_interval_s=60.0) as writer:
        assert writer.upsert(rows((1, 10))).reached in ("buffered", "visible")


@pytest.mark.parametrize("failing", [1, 2])
def test_the_flush_watermark_skips_no_unflushed_entry(table: Any, uri: str, failing: int) -> None:
    """#8293: a later MemTable was flushed before an earlier one, whose entries were then skipped
    by replay."""
    real = lance.write_dataset
    later = threading.Semaphore(0)

    def fail_one(data: Any, where: Any, *args: Any, **kwargs: Any) -> Any:
        if f"_gen_{failing}" in str(where):
            for _ in range(2):  # let two generations overtake this one
                later.acquire(timeout=2)
            raise OSError("LanceError(IO): this write fails")
        result = real(data, where, *args, **kwargs)
        if int(str(where).partition("_gen_")[2].partition("/")[0]) > failing:
            later.release()
        return result

    process = Process(uri)
    expected = {i: i for i in range(10)}
    with patch.object(lance, "write_dataset", fail_one):
        writer = process.table.writer(memtable_rows=3, parallel_flushes=4, flush_attempts=1)
        with suppress(MemWalError):
            for n in range(8):
                batch = [(n, n + 100), (n + 1, n + 200), (50 + n, n)]
                writer.upsert(rows(*batch))
                expected |= dict(batch)
        with suppress(MemWalError):
            writer.flush()
        process.kill()
    assert select(mw.open_table(uri)) == expected
    with mw.open_table(uri).writer() as again:
        again.upsert(rows((1, -1)))
        expected[1] = -1
        assert select(table) == expected
        again.flush()
        assert select(table) == expected


def test_a_writer_stops_when_its_wal_failed(table: Any, uri: str) -> None:
    """#7547: the next write was acknowledged although the one before was lost."""
    broken = threading.Event()

    def fail_at_wal(path: str) -> None:
        if broken.is_set() and _is_wal(path):
            raise StoreUnavailableError("the disk is on fire")

    writer = _open_hooked(uri, fail_at_wal).writer()
    writer.upsert(rows((1, 10)))
    broken.set()
    with pytest.raises((MemWalError, OSError)):
        writer.upsert(rows((2, 20)))
    broken.clear()
    for _ in range(3):
        with pytest.raises(ReopenError):
            writer.upsert(rows((3, 30)))
        with pytest.raises(ReopenError):
            writer.flush()
    with suppress(MemWalError):
        writer.close()
    found = select(mw.open_table(uri))
    assert found[1] == 10 and found[3] == 3
    upsert_rows(mw.open_table(uri), rows((3, 33)))
    assert get(mw.open_table(uri), 1, 3) == {1: 10, 3: 33}


def test_an_append_that_was_under_way_collides_with_the_successor_s_fence(
    table: Any, uri: str
) -> None:
    """#7110: without a fence before the replay, an entry that landed after it was acknowledged
    and lost."""
    armed, arrived, go_on = threading.Event(), threading.Event(), threading.Event()

    def pause_at_wal(path: str) -> None:
        if armed.is_set() and _is_wal(path):
            arrived.set()
            assert go_on.wait(30)

    old = _open_hooked(uri, pause_at_wal).writer()
    old.upsert(rows((1, 10)))
    armed.set()
    outcome: list[object] = []

    def write() -> None:
        try:
            old.upsert(rows((2, 20)))
            outcome.append("acknowledged")
        except MemWalError as error:
            outcome.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    assert arrived.wait(30)
    with mw.open_table(uri).writer() as new:
        new.upsert(rows((3, 30)))
        go_on.set()
        thread.join(30)
        assert isinstance(outcome[0], FencedError), outcome
        expected = {**{i: i for i in range(10)}, 1: 10, 3: 30}
        assert select(table) == expected
        new.flush()
        assert select(table) == expected


def test_a_zombie_can_t_append_where_wal_entries_were_collected(table: Any, uri: str) -> None:
    """SlateDB #1622: the collected position was free again, and a fenced writer's append landed
    there. Fences are never deleted (protocol rule 21)."""
    zombie = table.writer()
    zombie.upsert(rows((1, 10)))
    new = mw.open_table(uri).writer()
    new.upsert(rows((2, 20)))
    new.flush()
    store = open_store(uri)
    for region_id, manifest in manifests(uri).items():
        flushed = manifest.replay_after_wal_entry_position
        for path in (Path(uri) / "_mem_wal" / str(region_id) / "wal").iterdir():
            position = int(path.stem[::-1], 2)
            if position < flushed and b"fence_sentinel" not in path.read_bytes():
                store.delete([str(path.relative_to(uri))])
    for _ in range(2):
        with pytest.raises(FencedError):
            zombie.upsert(rows((1, 666)))
    with suppress(MemWalError):
        zombie.close()
    expected = {**{i: i for i in range(10)}, 1: 10, 2: 20}
    assert select(table) == expected
    new.upsert(rows((3, 30)))
    new.close()
    assert select(mw.open_table(uri)) == {**expected, 3: 30}


def test_a_fenced_writer_s_flush_commits_nothing(table: Any, uri: str) -> None:
    """Protocol rule 7: the generation of a fenced writer, written in time, committed too late."""
    zombie = table.writer()
    zombie.upsert(rows((1, 10)))
    with mw.open_table(uri).writer() as new:
        new.upsert(rows((1, 11)))
        with pytest.raises(ReopenError):
            zombie.flush()
        assert get(table, 1) == {1: 11}
        new.flush()
        assert get(table, 1) == {1: 11}
    with suppress(MemWalError):
        zombie.close()
    assert get(mw.open_table(uri), 1) == {1: 11}
    for manifest in manifests(uri).values():
        numbers = [g.generation for g in manifest.flushed_generations]
        assert numbers == list(range(1, manifest.current_generation))


def test_insert_uses_the_writer_that_was_opened_last(table: Any) -> None:
    """An earlier one, fenced without having noticed, made the statement fail."""
    session = session_of("t", table)
    session.sql("INSERT INTO t VALUES (1, 10)").collect()  # opens a writer of the table's own
    with table.writer() as writer:
        writer.upsert(rows((2, 20)))  # which this fences
        session.sql("INSERT INTO t VALUES (3, 30)").collect()
        writer.upsert(rows((4, 40)))
        assert get(table, 1, 2, 3, 4) == {1: 10, 2: 20, 3: 30, 4: 40}
    table.close()
