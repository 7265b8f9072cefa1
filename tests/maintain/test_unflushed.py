"""Rows that only the log has are flushed: asked for by hand, or once their writer is silent."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.maintain import unflushed
from memwal_sql.maintain.loop import Quiet
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.wal.log import Wal
from tests.cli.calls import as_json, call
from tests.model.faults import FaultyStore
from tests.model.opened import opened_over
from tests.model.process import forks
from tests.model.writing import session_of
from tests.soak import usual

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.string())])
REGIONS: dict[str, Any] = {
    "one region": None,
    "three regions": [mw.bucket("id", 3)],
    "by hand": mw.manual(),
}


def table_of(folder: Path, regions: str = "one region") -> mw.Table:
    return mw.create_table(folder / "t", SCHEMA, "id", regions=REGIONS[regions])


def writer_of(table: mw.Table, **options: Any) -> mw.TableWriter:
    by_hand = not table.info.region_specs or table.info.region_specs[0].is_manual
    return table.writer(region="eu" if by_hand else None, **options)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "v": [f"v{one}" for one in ids]}, SCHEMA)


def in_log(table: mw.Table) -> int:
    """Rows that no generation has."""
    return sum(mw.open_table(table.uri).regions()["unflushed_rows"].to_pylist())


def left_by_a_dead_one(table: mw.Table, *ids: int, **options: Any) -> None:
    """Write rows in a process that ends without closing its writer."""
    child = forks().Process(target=_write_and_die, args=(table.uri, ids, options))
    child.start()
    child.join(120)
    assert child.exitcode == 0


def _write_and_die(uri: str, ids: tuple[int, ...], options: dict[str, Any]) -> None:
    writer = writer_of(mw.open_table(uri), **options)
    for one in ids:
        writer.upsert(rows(one))
    os._exit(0)


def _closed(table: mw.Table) -> list[mw.TableWriter]:
    with writer_of(table) as writer:
        writer.upsert(rows(*range(10)))
    return []


def _open(table: mw.Table) -> list[mw.TableWriter]:
    writer = writer_of(table)
    writer.upsert(rows(*range(10)))
    return [writer]


def _buffered(table: mw.Table) -> list[mw.TableWriter]:
    writer = writer_of(table, durable=False, wal_flush_interval_s=3600.0)
    writer.upsert(rows(*range(10)))
    return [writer]


def _second_without_a_claim(table: mw.Table) -> list[mw.TableWriter]:
    return [*_open(table), writer_of(table)]


def _fenced(table: mw.Table) -> list[mw.TableWriter]:
    """Not knowing that it is."""
    first, second = _open(table), writer_of(mw.open_table(table.uri))
    second.upsert(rows(0, 1, 2))
    second.close()
    return first


def _fenced_in_use(table: mw.Table) -> list[mw.TableWriter]:
    first, second = _open(table), writer_of(mw.open_table(table.uri))
    second.upsert(rows(0, 1, 2))
    return [*first, second]


WRITERS: dict[str, Callable[[mw.Table], list[mw.TableWriter]]] = {
    one.__name__: one
    for one in (_closed, _open, _buffered, _second_without_a_claim, _fenced, _fenced_in_use)
}


@pytest.mark.parametrize("regions", REGIONS)
def test_a_flush_flushes_every_row(tmp_path: Path, regions: str) -> None:
    for name, write in WRITERS.items():
        table = table_of(tmp_path / name, regions)
        writers = write(table)
        table.flush()
        assert in_log(table) == 0, name
        assert table.count_rows() == 10, name
        assert table.flush() == 0, name
        for writer in writers:
            writer.close()


def test_a_flush_takes_a_region_from_a_writer_of_another_process(tmp_path: Path) -> None:
    """Which is known to be dead here, and to nobody else."""
    table = table_of(tmp_path)
    left_by_a_dead_one(table, 1, 2, memtable_age_s=None)
    assert (table.flush(), in_log(table), table.count_rows()) == (1, 0, 2)


def test_a_flush_leaves_the_writers_of_this_process_what_they_have(tmp_path: Path) -> None:
    table = table_of(tmp_path, "three regions")
    context = session_of("t", table)
    context.sql("INSERT INTO t VALUES (1, 'a')").collect()
    with table.writer() as writer:
        writer.upsert(rows(*range(10)))
        for step in range(3):
            assert table.flush() == 0
            writer.upsert(rows(step))
    table.close()


def test_an_unknown_log_is_nobodys_to_flush_until_it_is_asked_for(tmp_path: Path) -> None:
    """A writer that may keep its rows for ever can't be told from a dead one."""
    table = table_of(tmp_path)
    left_by_a_dead_one(table, 1, memtable_age_s=None)
    assert mw.Triggers().flush_seconds == 300.0
    mw.run_jobs_forever(table, mw.Triggers(flush_seconds=0), rounds=3, interval=0)
    assert outcome_of(table, 0.0) == f"{NONE}; {ONE_LEFT}"
    assert (table.flush(), in_log(table)) == (1, 0)


NONE = "0 regions of closed or silent writers flushed"
ONE_LEFT = "1 regions with rows left, whose writers may be open"


def at_once(_: float) -> None:
    pytest.fail("a log was waited for")


def outcome_of(
    table: mw.Table, seconds: float = 300.0, sleep: Callable[[float], object] = at_once
) -> str:
    runs = mw.run_all_jobs(table, mw.Triggers(flush_seconds=seconds), sleep=sleep)
    return runs[0].outcome


def test_a_dead_writers_log_is_flushed_and_that_of_a_living_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of writers that would stop with FencedError if they lived."""
    late = 0.0
    of_store = unflushed.store_time
    monkeypatch.setattr(unflushed, "store_time", lambda store: (of_store(store) or 0.0) + late)
    table = table_of(tmp_path)
    left_by_a_dead_one(table, *range(5), memtable_age_s=90.2, turns=False)
    (log,) = table.unflushed_logs(with_ages=True)
    assert (log.flushed_within, log.epoch, log.replay_after) == (113, 1, 0)
    assert (log.takes_turns, log.is_closed) == (False, False)
    assert 0.0 <= log.quiet <= log.age < 113.0
    assert outcome_of(table) == f"{NONE}; {ONE_LEFT}"
    late = 413.0
    assert outcome_of(table, 400.0) == f"{NONE}; {ONE_LEFT}"
    assert outcome_of(table) == NONE.replace("0", "1", 1)
    with writer_of(table, memtable_age_s=60.0) as writer:
        writer.upsert(rows(7))
        # This process's own, however old; in another one, nothing is known of it.
        assert table.unflushed_logs() == []
        assert outcome_of(table) == f"{NONE}; 1 rows left to the open writers of this process"
        writer.upsert(rows(8))
    assert (in_log(table), table.count_rows()) == (2, 7)
    assert outcome_of(table) == NONE.replace("0", "1", 1)
    assert (in_log(table), table.count_rows(), table.unflushed_logs()) == (0, 7, [])
    assert table.check().ok


CLOSED: dict[str, dict[str, Any]] = {
    "durable": {},
    "buffered": {"durable": False},
    "alone": {"turns": False},
    "of no age": {"memtable_age_s": None},
}


JOBS: dict[str, Callable[[mw.Table], object]] = {
    "once": outcome_of,
    "in a loop": lambda table: mw.run_jobs_forever(table, mw.Triggers(flush_seconds=0.0), rounds=1),
}
CASES = [(regions, name, job) for regions in REGIONS for name in CLOSED for job in JOBS]


def test_jobs_flush_at_once_what_closed_writers_left(tmp_path: Path) -> None:
    """These rows stayed in the log for six minutes."""
    for regions, name, job in usual(CASES, 8):
        table = table_of(tmp_path / regions / name / job, regions)
        with writer_of(table, **CLOSED[name]) as writer:
            writer.upsert(rows(*range(10)))
        assert in_log(table) == 10
        JOBS[job](table)
        assert (in_log(table), table.count_rows()) == (0, 10), (regions, name, job)


def test_what_a_process_left_in_the_log_is_flushed_when_it_is_quiet(tmp_path: Path) -> None:
    """A writer that takes turns goes on when it lives after all."""
    table = table_of(tmp_path)
    left_by_a_dead_one(table, 1)
    with Quiet.set(seconds=3600.0):
        assert outcome_of(table, math.inf) == f"{NONE}; {ONE_LEFT}"
        # Another process writes while this one waits.
        told = outcome_of(table, sleep=lambda _: left_by_a_dead_one(table, 2))
        assert told == f"{NONE}; {ONE_LEFT}"
        assert outcome_of(table, sleep=[].append) == NONE.replace("0", "1", 1)
    assert (in_log(table), table.count_rows()) == (0, 2)


def test_a_damaged_log_keeps_no_other_from_being_flushed(tmp_path: Path) -> None:
    """Damage in an entry that is not the newest: who looks for silent writers does not read it."""
    table = table_of(tmp_path, "three regions")
    with writer_of(table) as writer:
        for _ in range(2):
            writer.upsert(rows(*range(30)))
    ids = {log.region_id for log in table.unflushed_logs()}
    damaged = min(ids)
    wal = Wal(open_store(table.uri), damaged)
    position = next(one for one in wal.positions() if not _is_fence(wal, one))
    path = Path(table.uri, wal.path(position))
    path.write_bytes(path.read_bytes()[:-40] + bytes(40))
    for flush in (lambda: table.flush_regions(ids), table.flush):
        with pytest.raises(mw.CorruptFileError):
            flush()
        assert {log.region_id for log in table.unflushed_logs()} == {damaged}


def _is_fence(wal: Wal, position: int) -> bool:
    entry = wal.read(position)
    return entry is None or entry.is_fence


def test_a_new_claim_counts_from_the_claim(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    with writer_of(table) as writer:
        writer.upsert(rows(1))
    past = time.time() - 1000.0
    for folder, _, files in os.walk(tmp_path):
        for name in files:
            if folder.endswith(("/wal", "/manifest")):
                os.utime(os.path.join(folder, name), (past, past))
    (log,) = table.unflushed_logs(with_ages=True)
    assert 990.0 < log.age < 1100.0
    with writer_of(table) as writer:
        writer.upsert(rows(2))
    (log,) = table.unflushed_logs(with_ages=True)
    assert log.age < 100.0 and log.epoch == 2


class _Asked(FaultyStore):
    """Notes the WAL entries that are read."""

    asked: list[str]

    def get(self, path: str) -> bytes:
        self.asked += [path] if "/wal/" in path else []
        return bytes(self.__getattr__("get")(path))


def test_a_fence_is_read_once_unless_another_entry_takes_its_place(tmp_path: Path) -> None:
    table, copy = table_of(tmp_path), tmp_path / "copy"
    with writer_of(table) as writer:
        writer.upsert(rows(1))
        shutil.copytree(table.uri, copy)
        writer.upsert(rows(2))
    mw.open_table(copy).flush()  # a claim's fence, where the table has the second row
    asked = _Asked.asked = []
    idle = opened_over(str(copy), _Asked)
    assert idle.unflushed_logs() == []
    (fence,) = asked
    assert idle.unflushed_logs() == [] == idle.unflushed_logs(refresh=False)
    assert asked == [fence]
    (copy / fence).write_bytes((Path(table.uri) / fence).read_bytes())  # restored by hand
    assert len(idle.unflushed_logs(refresh=False)) == 1 and asked == [fence, fence]
    left_by_a_dead_one(mw.open_table(copy), 3)
    assert len(idle.unflushed_logs()) == 1
    assert (idle.flush(), idle.unflushed_logs(), idle.count_rows()) == (1, [], 3)


def test_the_command_flushes(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    left_by_a_dead_one(table, 1, 2)
    assert call("flush", table.uri) == "1 region flushed\n"
    assert in_log(table) == 0
    assert as_json("flush", table.uri) == {"regions_flushed": 0}
