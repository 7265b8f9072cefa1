"""Tables on stores without put-if-absent (specification 4)."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import InvalidCallError
from memwal_sql.storage.objects.commit_log import SqliteCommitLog
from memwal_sql.storage.objects.local import LocalStore
from memwal_sql.storage.objects.open import open_store
from tests.crash.killing import run_to_death
from tests.model.pairs import SCHEMA, pairs_of, rows
from tests.model.process import forks
from tests.model.s3 import s3_server
from tests.soak import usual
from tests.storage.stepping import die_at


def _read(uri: str, options: dict[str, str]) -> dict[int, int | None]:
    return pairs_of(mw.open_table(uri, storage_options=options).scan().read_all())


def test_a_table_lives_on_a_store_without_put_if_absent(
    tmp_path: Path, log_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storage option is all that a user does."""

    def unsupported(self: object, path: str, data: bytes) -> bool:
        raise AssertionError("this store can't put if absent")

    monkeypatch.setattr(LocalStore, "put_if_absent", unsupported)
    uri, options = str(tmp_path / "table"), {"memwal_commit_log": log_file}
    table = mw.create_table(
        uri, SCHEMA, primary_key="id", regions=[mw.bucket("id", 2)], storage_options=options
    )
    with table.writer() as writer:
        writer.upsert(rows((1, 1), (2, 2)))
        writer.flush()
        writer.upsert(rows((2, 3)))
    with mw.open_table(uri, storage_options=options).writer() as writer:
        writer.delete(pa.table({"id": [1]}))
    assert _read(uri, options) == {2: 3}
    with pytest.raises(InvalidCallError, match="was made with a commit log"):
        mw.open_table(uri)


@pytest.mark.slow
def test_a_commit_log_decides_on_s3_too(tmp_path: Path, log_file: str) -> None:
    """Lance passes over the option that is ours."""
    with s3_server("tables") as options:
        with_log, uri = {**options, "memwal_commit_log": log_file}, "s3://tables/t"
        table = mw.create_table(uri, SCHEMA, primary_key="id", storage_options=with_log)
        with table.writer() as writer:
            writer.upsert(rows((1, 1), (2, 2)))
            writer.flush()
            writer.delete(pa.table({"id": [2]}))
        assert _read(uri, with_log) == {1: 1}
        listed = open_store(uri, options).list("_mem_wal")
        assert [meta.path for meta in listed if meta.path.count(".") > 1] == []


def test_the_collector_takes_what_dead_puts_left_and_the_records_of_what_it_deletes(
    tmp_path: Path, log_file: str
) -> None:
    uri, options = str(tmp_path / "table"), {"memwal_commit_log": log_file}
    table = mw.create_table(uri, SCHEMA, primary_key="id", storage_options=options)
    with table.writer() as writer:
        for number in range(4):
            writer.upsert(rows((number, number)))
            writer.flush()
    (wal,) = Path(uri).glob("_mem_wal/*/wal")
    path = f"{wal.relative_to(uri)}/{'1' * 64}.arrow"
    log = SqliteCommitLog(log_file, uri)
    die_at(3, False, LocalStore(uri), log, lambda s: s.put_if_absent(path, b"never"))
    (left,) = wal.glob("1111*")
    two_hours_ago = time.time() - 7200  # what is younger may still be under way
    os.utime(left, (two_hours_ago, two_hours_ago))
    table.merge()
    recorded = len(_all_recorded(log))
    entries = len(list(wal.iterdir()))
    table.collect_garbage(older_than=timedelta(0))
    assert not left.exists()
    assert len(list(wal.iterdir())) < entries and len(_all_recorded(log)) < recorded
    there = {str(file.relative_to(uri)) for file in Path(uri).rglob("*") if file.is_file()}
    assert _all_recorded(log) <= there
    assert table.check().ok
    assert _read(uri, options) == {number: number for number in range(4)}


def _all_recorded(log: SqliteCommitLog) -> set[str]:
    with log._transaction() as connection:
        return {row[0] for row in connection.execute("SELECT path FROM commits")}


def test_a_table_made_without_a_log_is_not_opened_with_one(tmp_path: Path, log_file: str) -> None:
    """Its other writers would not ask the log."""
    uri = str(tmp_path / "table")
    mw.create_table(uri, SCHEMA, primary_key="id")
    with pytest.raises(InvalidCallError, match="made without a commit log: leave out"):
        mw.open_table(uri, storage_options={"memwal_commit_log": log_file})


def _write_and_die(uri: str, options: dict[str, str], nth: int, link: Any) -> None:
    """Write counters to row 5 until the `nth` change of a file or of the log kills the process."""
    budget = [nth]

    def trapped(inner: Any) -> Any:
        def call(*args: Any) -> Any:
            budget[0] -= 1
            if budget[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return inner(*args)

        return call

    for owner, name in ((LocalStore, "put"), (LocalStore, "delete"), (SqliteCommitLog, "swap")):
        setattr(owner, name, trapped(getattr(owner, name)))
    with mw.open_table(uri, storage_options=options).writer(memtable_rows=2) as writer:
        for number in range(1, 6):
            writer.upsert(rows((5, number)))
            link.send(number)


@pytest.mark.slow
@pytest.mark.parametrize("nth", usual(range(1, 40, 3), 5))
def test_an_acknowledged_row_survives_a_killed_writer(
    tmp_path: Path, log_file: str, nth: int
) -> None:
    uri, options = str(tmp_path / "table"), {"memwal_commit_log": log_file}
    mw.create_table(uri, SCHEMA, primary_key="id", storage_options=options)
    said, survived = run_to_death(forks(), _write_and_die, uri, options, nth)
    assert not survived
    acknowledged = said[-1] if said else 0
    seen = _read(uri, options).get(5, 0)
    assert seen in (acknowledged, acknowledged + 1)
    with mw.open_table(uri, storage_options=options).writer() as writer:
        writer.upsert(rows((6, 1)))  # claims the region, which settles what was unknown
        kept = _read(uri, options).get(5, 0)
        assert kept in (acknowledged, acknowledged + 1) and kept >= seen
        writer.flush()
    expected = {6: 1} | ({5: kept} if kept else {})
    assert _read(uri, options) == expected
    assert SqliteCommitLog(log_file, uri).unfinished() == []
