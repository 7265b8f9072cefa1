"""The log that decides where a store can't (specification 4)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memwal_sql.errors import InvalidCallError
from memwal_sql.storage.objects.commit_log import (
    Commit,
    CommitState,
    SqliteCommitLog,
    open_commit_log,
    register_commit_log,
)
from memwal_sql.storage.objects.open import open_store
from tests.model.racing import race

PATH = "folder/0001.binpb"


def test_the_log_swaps_only_what_is_there(log: SqliteCommitLog) -> None:
    one = Commit(PATH, "s1", CommitState.PREPARED)
    two = Commit(PATH, "s1", CommitState.COMMITTED)
    assert log.swap(PATH, None, None) and log.swap(PATH, None, one)
    assert not log.swap(PATH, None, two) and not log.swap(PATH, two, None)
    assert not log.swap(PATH, None, None)
    assert log.unfinished() == [one]
    assert log.swap(PATH, one, two) and not log.swap(PATH, one, two)
    assert log.read(PATH) == two and log.unfinished() == []
    assert log.swap(PATH, two, None) and log.read(PATH) is None


def test_many_open_a_new_log_at_once(tmp_path: Path) -> None:
    """SQLite does not wait for others who switch the journal of a new file."""
    for number in range(20):
        opened = race(*[partial(SqliteCommitLog, str(tmp_path / f"{number}.sqlite"), "table")] * 8)
        assert len(opened) == 8


def test_tables_share_a_log_without_seeing_each_other(log_file: str) -> None:
    one, two = (SqliteCommitLog(log_file, name) for name in ("one", "two"))
    commit = Commit(PATH, "s", CommitState.PREPARED)
    assert one.swap(PATH, None, commit) and two.swap(PATH, None, commit)
    assert one.swap(PATH, commit, None)
    assert one.unfinished() == [] and two.unfinished() == [commit]


def test_a_log_of_ones_own_is_registered_by_scheme(log: SqliteCommitLog) -> None:
    opened: list[tuple[str, str]] = []

    def opener(value: str, table_uri: str) -> Any:
        opened.append((value, table_uri))
        return log

    register_commit_log("fakedb", opener)
    open_store("memory://registered", {"memwal_commit_log": "fakedb://commits"})
    assert opened == [("fakedb://commits", "memory://registered")]


def test_bad_logs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidCallError, match="nothing is known of dynamodb://"):
        open_commit_log("dynamodb://x", "t")
    with pytest.raises(InvalidCallError, match="is not there; make it first"):
        open_commit_log(str(tmp_path / "none" / "log"), "t")
    (tmp_path / "text").write_text("this is no database, although it is long enough to be one" * 9)
    with pytest.raises(InvalidCallError, match="file that SQLite can use"):
        open_commit_log(f"sqlite://{tmp_path}/text", "t")
    with pytest.raises(InvalidCallError, match="choose a word"):
        register_commit_log("sqlite", lambda value, uri: SqliteCommitLog(value, uri))
