"""Named checkpoints: they hold what a strong reader saw, until they end."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.maintain.checkpoint import checkpoints
from memwal_sql.storage.objects.open import open_store
from tests.each import each
from tests.maintain.life import NOW, SCHEMA, collect, create, flush, kinds, merge_all, rows, values
from tests.model.process import Process, as_another_process
from tests.model.racing import contest

HOUR = timedelta(hours=1)


def test_the_rows_of_buffered_writers_of_this_process_are_in_it(tmp_path: Path) -> None:
    table = create(tmp_path)
    with table.writer(durable=False, wal_flush_interval_s=100.0) as writer:
        writer.upsert(rows(0, 3, 1))
        table.checkpoint("then")
        writer.upsert(rows(0, 3, 2))
        with as_another_process():
            held = mw.open_table(table.uri, checkpoint="then")
            assert values(held) == dict.fromkeys(range(4), 1)


def test_what_a_checkpoint_holds_is_collected_when_it_is_dropped(tmp_path: Path) -> None:
    table = create(tmp_path)
    flush(table, rows(0, 9, 1))
    with table.writer() as writer:
        writer.upsert(rows(5, 6, 2))
        writer.upsert(rows(7, 8, 2))
        table.checkpoint("then")
        writer.flush()
    merge_all(table)
    # The generation that was flushed after it, and an entry that was flushed before it.
    assert kinds(collect(table)) == {"generation": 1, "wal entry": 1}
    table.drop_checkpoint("then")
    assert table.checkpoints().num_rows == 0
    assert kinds(collect(table, after=1)) == {"generation": 1, "wal entry": 1, "checkpoint": 1}
    assert lance.dataset(table.uri).tags.list() == {}
    with pytest.raises(mw.InvalidCallError, match=r"no checkpoint 'then'; it has \[\]"):
        mw.open_table(table.uri, checkpoint="then")


def test_an_expired_checkpoint_is_an_error_that_says_so(tmp_path: Path) -> None:
    table = create(tmp_path)
    flush(table, rows(0, 9, 1))
    table.checkpoint("short", expires=timedelta(milliseconds=5))
    time.sleep(0.01)
    with pytest.raises(mw.InvalidCallError, match=r"'short' of .* expired at 20"):
        mw.open_table(table.uri, checkpoint="short")
    assert table.checkpoints()["expired"].to_pylist() == [True]
    table.checkpoint("short", expires=datetime.now(UTC) + HOUR)
    merge_all(table)
    for after in (0, 1.5 * 3600):  # the grace period goes on from its end
        found = kinds(collect(table, after=after, older_than=HOUR))
        assert not {"generation", "checkpoint"} & set(found)
    found = kinds(collect(table, after=2.5 * 3600, older_than=HOUR))
    assert {"generation", "checkpoint"} <= set(found)


def test_checkpoints_are_listed(tmp_path: Path) -> None:
    table = create(tmp_path, regions=2)
    flush(table, rows(0, 9, 1))
    until = datetime(2100, 1, 1, tzinfo=UTC)
    version = table.checkpoint("b")
    table.checkpoint("a", expires=until)
    found = table.checkpoints().to_pylist()
    assert [(one["name"], one["expires"], one["regions"]) for one in found] == [
        ("a", until, 2),
        ("b", None, 2),
    ]
    assert found[1]["base_version"] == version == lance.dataset(table.uri).version


def test_lances_own_cleanup_keeps_the_base_version_as_long_as_its_tag_is_there(
    tmp_path: Path,
) -> None:
    table = create(tmp_path)
    flush(table, rows(0, 9, 1))
    merge_all(table)
    version = table.checkpoint("c")
    flush(table, rows(0, 9, 2))
    merge_all(table)
    dataset = lance.dataset(table.uri)
    dataset.cleanup_old_versions(
        older_than=NOW, delete_unverified=True, error_if_tagged_old_versions=False
    )
    assert values(mw.open_table(table.uri, checkpoint="c")) == dict.fromkeys(range(10), 1)
    for tag in dataset.tags.list():
        dataset.tags.delete(tag)
    dataset.cleanup_old_versions(older_than=NOW, delete_unverified=True)
    with pytest.raises(mw.InvalidCallError, match=f"no version {version}"):
        mw.open_table(table.uri, checkpoint="c")


@each("name", ["", "a/b", ".hidden", "ä", "x" * 101, None, 7])
def test_names_that_do_not_fit_are_refused(tmp_path: Path, name: Any) -> None:
    table = create(tmp_path)
    for call in (table.checkpoint, table.drop_checkpoint):
        with pytest.raises(mw.InvalidCallError, match="can't name a checkpoint"):
            call(name)


@each(
    "expires, message",
    [
        (timedelta(0), "not in the future"),
        (datetime(2020, 1, 1, tzinfo=UTC), "not in the future"),
        (datetime(2100, 1, 1), "with a time zone"),
        (3600, "must be a timedelta"),
        (timedelta.max, "beyond the year 9999"),
        (timedelta(days=99_999_999), "beyond the year 9999"),
        (datetime.max.replace(tzinfo=UTC), "beyond the year 9999"),
    ],
)
def test_ends_that_do_not_fit_are_refused(tmp_path: Path, expires: Any, message: str) -> None:
    table = create(tmp_path)
    with pytest.raises(mw.InvalidCallError, match=message):
        table.checkpoint("c", expires=expires)
    assert table.checkpoints().num_rows == 0


def test_a_name_in_use_is_refused_and_free_again_when_dropped(tmp_path: Path) -> None:
    table = create(tmp_path)
    flush(table, rows(0, 3, 1))
    table.checkpoint("c")
    with pytest.raises(mw.InvalidCallError, match="there is a checkpoint 'c' already"):
        table.checkpoint("c")
    table.drop_checkpoint("c")
    with pytest.raises(mw.InvalidCallError, match="no checkpoint 'c'"):
        table.drop_checkpoint("c")
    flush(table, rows(0, 3, 2))
    table.checkpoint("c")
    assert values(mw.open_table(table.uri, checkpoint="c")) == dict.fromkeys(range(4), 2)
    collect(table, after=1)
    assert values(mw.open_table(table.uri, checkpoint="c")) == dict.fromkeys(range(4), 2)


def test_a_checkpoint_that_a_collector_overtook_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint looks at the floors after it was recorded; what it pinned may have gone."""
    table = create(tmp_path)
    flush(table, rows(0, 3, 1))
    with table.writer() as writer:
        writer.upsert(rows(2, 5, 2))
        write = checkpoints.write
        overtaken: list[int] = []

        def slow(store: Any, checkpoint: Any) -> bool:
            if not overtaken:
                overtaken.append(checkpoint.version)
                writer.flush()
                writer.upsert(rows(8, 8, 3))
                writer.flush()
                merge_all(table)
                collect(table)
            return write(store, checkpoint)

        monkeypatch.setattr(checkpoints, "write", slow)
        version = table.checkpoint("c")
    assert version > overtaken[0]
    expected = {0: 1, 1: 1, 2: 2, 3: 2, 4: 2, 5: 2, 8: 3}
    assert values(mw.open_table(table.uri, checkpoint="c")) == expected
    assert [tag["version"] for tag in lance.dataset(table.uri).tags.list().values()] == [version]


@pytest.mark.parametrize("step", ["latest_dataset", "read_watermarks"])
@pytest.mark.parametrize("kind", [mw.StoreUnavailableError, mw.DeadlineExceededError])
def test_a_checkpoint_whose_making_fails_is_given_back(
    step: str, kind: type[mw.MemWalError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path)
    flush(table, rows(0, 9, 1))
    asked = getattr(checkpoints, step)
    failures = iter([kind("no answer")])

    def failing(*given: Any, **options: Any) -> Any:
        for error in failures:
            raise error
        return asked(*given, **options)

    monkeypatch.setattr(checkpoints, step, failing)
    with pytest.raises(mw.RetryError, match="no answer") as caught:
        table.checkpoint("then")
    assert type(caught.value) is kind
    assert table.checkpoints().num_rows == 0
    table.checkpoint("then")
    assert values(mw.open_table(table.uri, checkpoint="then")) == dict.fromkeys(range(10), 1)


def test_a_checkpoint_that_can_not_be_given_back_says_to_drop_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path)
    wrote = checkpoints.write

    def failing(store: Any, one: Any) -> bool:
        if one.dropped:
            raise mw.StoreUnavailableError("nor that")
        return wrote(store, one)

    def unavailable(*_: Any) -> Any:
        raise mw.StoreUnavailableError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "write", failing)
        patched.setattr(checkpoints, "read_watermarks", unavailable)
        with pytest.raises(mw.OutcomeUnknownError, match="drop it, and make it again: no answer"):
            table.checkpoint("then")
    table.drop_checkpoint("then")
    table.checkpoint("then")


def test_a_collector_sees_a_checkpoint_that_is_made_while_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collector looks at the checkpoints again once the floors are raised."""
    table = create(tmp_path)
    flush(table, rows(0, 3, 1))
    with table.writer() as writer:
        writer.upsert(rows(2, 5, 2))
        old = mw.open_table(table.uri)
        pinned = old.collector.pin("strong")
        writer.flush()
    merge_all(table)
    expected = {0: 1, 1: 1, 2: 2, 3: 2, 4: 2, 5: 2}
    store = open_store(table.uri)
    made = []

    class Meddler:
        """Makes the checkpoint right before the collector raises the floors."""

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def put_if_absent(self, path: str, data: bytes) -> bool:
            if "/collected/" in path and not made:
                monkeypatch.setattr(old.collector, "pin", lambda consistency: pinned)
                made.append(old.checkpoint("c"))
            return store.put_if_absent(path, data)

    report = collect(table, store=Meddler())
    assert made and kinds(report)["generation"] == 1
    assert values(mw.open_table(table.uri, checkpoint="c")) == expected


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_one_who_dies_while_making_a_checkpoint_leaves_none_or_a_whole_one(
    tmp_path: Path, before: bool
) -> None:
    table = create(tmp_path)
    flush(table, rows(0, 3, 1))
    for change in range(1, 4):
        process = Process(table.uri)
        process.switch.kill_at(change, before=before)
        name = f"c{change}"
        try:
            process.table.checkpoint(name)
        except Exception:
            process.kill()
        if name in table.checkpoints()["name"].to_pylist():
            assert values(mw.open_table(table.uri, checkpoint=name)) == dict.fromkeys(range(4), 1)
            table.drop_checkpoint(name)
        table.checkpoint(name)
        table.drop_checkpoint(name)
    collect(table, after=1)
    assert lance.dataset(table.uri).tags.list() == {}


def test_many_make_the_same_checkpoint_and_one_of_them_wins(tmp_path: Path) -> None:
    table = create(tmp_path)
    flush(table, rows(0, 3, 1))
    handles = [mw.open_table(table.uri) for _ in range(4)]
    won, lost = contest(mw.InvalidCallError, *(partial(one.checkpoint, "c") for one in handles))
    assert len(won) == 1 and len(lost) == 3
    assert values(mw.open_table(table.uri, checkpoint="c")) == dict.fromkeys(range(4), 1)


def test_a_checkpoint_keeps_its_columns(tmp_path: Path) -> None:
    table = create(tmp_path)
    flush(table, rows(0, 3, 1))
    table.checkpoint("c")
    lance.dataset(table.uri).add_columns(pa.field("extra", pa.int64()))
    held = mw.open_table(table.uri, checkpoint="c")
    assert held.schema == SCHEMA.set(0, pa.field("id", pa.int64(), False))
    assert values(held) == dict.fromkeys(range(4), 1)


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@each(
    "ways",
    [
        {"version": 1, "checkpoint": "c"},
        {"timestamp": NOON, "checkpoint": "c"},
        {"version": 1, "timestamp": NOON},
    ],
)
def test_only_one_way_into_the_past_may_be_named(tmp_path: Path, ways: dict[str, Any]) -> None:
    table = create(tmp_path)
    with pytest.raises(mw.InvalidCallError, match="give one of version, timestamp"):
        mw.open_table(table.uri, **ways)


@each("name", ["ü ñ", "a%20b", "a#b", "a?b", "a[b]", "a\\b", "日本"])
def test_nothing_appears_beside_a_folder_whose_name_uris_encode(tmp_path: Path, name: str) -> None:
    table = mw.create_table(tmp_path / name, SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert(rows(1, 1, 1))
    table.checkpoint("before")
    table.tags.create("opening", table.snapshot_regions())
    assert list(table.tags) == ["opening"]
    assert mw.open_table(table.uri, version="opening").count_rows() == 0
    assert mw.open_table(table.uri, checkpoint="before").count_rows() == 1
    table.tags.delete("opening")
    table.drop_checkpoint("before")
    assert list(table.tags) == []
    assert os.listdir(tmp_path) == [name]


def test_a_tag_whose_put_was_answered_by_an_error_is_taken(tmp_path: Path) -> None:
    """A client that tries a put again is told that the tag is there. One of another version is not
    ours."""
    table = create(tmp_path)
    flush(table, rows(0, 9, 1))
    dataset = lance.dataset(table.uri)
    dataset.tags.create("memwal_sql.checkpoint.then.1", dataset.version)
    table.checkpoint("then")
    assert values(mw.open_table(table.uri, checkpoint="then")) == values(table)
    merge_all(table)
    dataset.tags.create("memwal_sql.checkpoint.other.1", 1)
    with pytest.raises(mw.RetryError, match=r"make the checkpoint again: .*already exists"):
        table.checkpoint("other")
    assert table.checkpoints()["name"].to_pylist() == ["then"]
    table.checkpoint("other")
