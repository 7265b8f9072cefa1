"""Nothing that has changed since the last look is missed by answers without one."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

import lance
import pytest

import memwal_sql as mw
from memwal_native import void_questions
from memwal_sql.read.live import image
from memwal_sql.state import base_table
from tests.live.case import ROWS, Case, buffer, upsert_by_an_open_writer


def test_what_plain_lance_has_changed_is_seen_at_once(case: Case) -> None:
    assert case.is_quick()
    lance.dataset(case.table.uri).delete("id = 3")
    assert case.total() == ROWS - 1


def test_another_base_version_of_the_same_number_is_seen(case: Case, tmp_path: Path) -> None:
    """After a copy of the table was put back."""
    uri, saved = case.table.uri, tmp_path / "saved"
    shutil.copytree(uri, saved)
    lance.dataset(uri).delete("id = 3")
    assert case.total() == case.total() == ROWS - 1
    shutil.rmtree(uri)
    shutil.move(saved, uri)
    lance.dataset(uri).delete("id = 4")
    assert (case.value(3), case.value(4)) == (1, None)


def rename(case: Case) -> None:
    case.other.rename_column("v", "w")


def drop_and_add(case: Case) -> None:
    """The types and the names are as before."""
    case.other.drop_columns("v")
    case.other.add_columns({"v": "CAST(2 AS BIGINT)"})


@pytest.mark.parametrize("change", [rename, drop_and_add])
def test_other_columns_are_an_error_in_a_session_of_before(
    case: Case, change: Callable[[Case], None]
) -> None:
    change(case)
    session = mw.SessionContext()
    case.table.refresh()
    mw.register(session, "t", case.table)
    assert case.table.answers is not None
    before = case.table.answers.count
    while case.table.answers.count == before:
        session.sql("SELECT * FROM t").to_arrow_table()
    with pytest.raises(Exception, match="columns"):
        case.total()


@pytest.mark.parametrize("flushes", [3, 14])
def test_what_was_flushed_and_collected_is_seen_at_once(case: Case, flushes: int) -> None:
    """No entry tells of it; after some flushes neither the next manifest nor the last is there."""
    with case.other.writer() as writer:
        writer.upsert({"id": [3], "v": [6]})
        case.other.collect_garbage(older_than=datetime.timedelta(0))
        assert case.total() == case.total() == ROWS + 5
        for value in range(7, 7 + flushes):
            writer.upsert({"id": [3], "v": [value]})
            writer.flush()
        case.other.collect_garbage(older_than=datetime.timedelta(0))
        assert case.value(3) == 6 + flushes


def test_an_entry_behind_one_that_is_lost_is_seen(case: Case) -> None:
    def entries() -> set[Path]:
        return set(Path(case.table.uri).glob("_mem_wal/*/wal/*"))

    upsert_by_an_open_writer(case)
    assert case.total() == case.total() == ROWS + 6
    before = entries()
    case.upsert([3], 8)
    (lost,) = entries() - before
    case.upsert([3], 9)
    lost.unlink()
    assert case.value(3) == 9


def test_a_file_that_nobody_can_ask_for_is_not_taken_as_absent(case: Case) -> None:
    """Its folder is a link to itself."""
    folders = list(Path(case.table.uri).glob("_mem_wal/*/wal"))
    assert case.is_quick()
    for folder in folders:
        folder.rename(f"{folder}_moved")
        folder.symlink_to(folder)
    with pytest.raises(Exception, match="symbolic links"):
        case.total()
    for folder in folders:
        folder.unlink()
        Path(f"{folder}_moved").rename(folder)
    assert case.total() == ROWS


def test_a_row_that_is_buffered_during_a_look_is_seen(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the look has read its region, and before it leaves its questions."""
    buffer(case)
    ask, later = image.questions_of, [8]

    def beside(*look: Any) -> Any:
        while later:
            case.upsert([3], later.pop())
        return ask(*look)

    monkeypatch.setattr(image, "questions_of", beside)
    assert case.total() == ROWS + 6
    assert case.value(3) == 8


def test_answers_are_given_for_as_long_as_the_base_table_was_checked(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version with a tag outlives a cleanup, which removes the next one."""
    tracker, left = case.table.tracker, [0.1]
    clock = lambda: tracker._checked + base_table._FULL_CHECK_SECONDS - left[0]  # noqa: E731
    monkeypatch.setattr(tracker, "_clock", clock)
    void_questions()
    assert case.total() == ROWS
    dataset = lance.dataset(case.table.uri)
    dataset.tags.create("kept", dataset.version)
    for key in (3, 4):
        dataset.delete(f"id = {key}")
    dataset.cleanup_old_versions(
        datetime.timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False
    )
    sleep(0.2)
    left[0] = -1.0
    assert case.total() == ROWS - 2
