"""The WAL tail of a region whose writer is in another process."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.read import region
from memwal_sql.storage import paths
from memwal_sql.storage.objects.concurrent import ReadWindow
from memwal_sql.storage.objects.local import LocalStore
from memwal_sql.table import writing
from tests.each import each
from tests.maintain.remote import hooked
from tests.model.merging import manifests
from tests.model.opened import Remote, opened_over
from tests.model.process import as_another_process
from tests.model.writing import flush_rows, upsert_rows
from tests.write.hooked_store import Call, HookedStore

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64())])


def rows(version: int) -> pa.Table:
    return pa.table({"id": [1, 2], "v": [version, version]}, schema=SCHEMA)


def test_entries_that_are_flushed_by_now_are_not_read(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    reader = mw.open_table(tmp_path / "t")
    read: list[str] = []
    get = LocalStore.get

    def noted(store: LocalStore, path: str) -> bytes:
        data = get(store, path)
        if "/wal/" in path:
            read.append(path)
        return data

    with (
        patch.object(region, "live_writer", lambda table, region_id: None),
        patch.object(LocalStore, "get", noted),
        table.writer() as writer,
    ):
        writer.upsert(rows(1))
        assert reader.get([1])["v"].to_pylist() == [1]
        assert read, "the row is in the WAL alone"
        for version in range(2, 5):
            writer.upsert(rows(version))
            writer.flush()
        read.clear()
        assert reader.get([1])["v"].to_pylist() == [4]
        assert read == []
        writer.upsert(rows(5))
        assert reader.get([1])["v"].to_pylist() == [5]
        assert len(read) == 1


def test_a_log_that_goes_while_it_is_read_is_not_empty(tmp_path: Path) -> None:
    """What a flush has made needless may be deleted, to the last entry, before it is listed."""
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    reader = hooked(table)
    moment = 0.0
    object.__setattr__(reader.context, "clock", lambda: moment)
    with table.writer() as writer:
        writer.upsert(rows(1))
        writer.flush()
        writer.upsert(rows(2))  # is read while the log is listed
        writer.upsert(rows(3))

        def hook(operation: str, path: str, call: Call) -> Any:
            nonlocal moment
            if operation == "list" and path.endswith("/wal") and not moment:
                writer.flush()
                for entry in Path(table.uri).glob("_mem_wal/*/wal/*"):
                    entry.unlink()
                moment = ReadWindow.seconds
            return call()

        reader.context.store.hook = hook
        with as_another_process():
            assert reader.scan().read_all()["v"].to_pylist() == [3, 3]
        assert moment


@pytest.mark.parametrize("how", ["gone", "folder"])
@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("above", [1, 2, 3])
def test_an_entry_missing_below_others_ends_no_read(
    above: int, remote: bool, how: str, tmp_path: Path
) -> None:
    """Protocol rule 5: the rows of those above it were acknowledged, too."""
    uri, first = _logged(tmp_path)
    entry = _entry(uri, first + above)
    entry.unlink()
    if how == "folder":
        entry.mkdir()
    queries = [
        lambda table: table.scan().read_all(),
        lambda table: table.get([1]),
        lambda table: table.count_rows(),
    ]
    others = [
        lambda table: table.pin(),
        lambda table: table.changes().read_all(),
        lambda table: table.writer().__enter__().upsert(rows(5)),
    ]
    for ask in (*queries, *others):
        handle = _opened(uri, remote)
        if remote and how == "gone" and above == 1 and ask in queries:
            # Nothing tells that from the end without a request more at each query.
            assert handle.get([1])["v"].to_pylist() == [0]
            _let_time_pass(handle)
        for _ in range(3):
            with pytest.raises(mw.CorruptFileError, match=_TEXTS[how]) as caught:
                ask(handle)
            assert entry.name in str(caught.value)
    report = mw.open_table(uri).check()
    assert not report.ok and entry.name in str(report)


@each("remote", [False, True])
@each("flushed", [False, True])
@each("read", ["scan", "get", "changes", "range"])
def test_a_lost_next_entry_is_told_from_the_end_by_who_waits_for_it(
    read: str, flushed: bool, remote: bool, tmp_path: Path
) -> None:
    """Protocol rule 5: again and again, until it is back."""
    uri, _ = _logged(tmp_path, range(1, 3))
    if flushed:
        flush_rows(mw.open_table(uri), rows(3))
    newest = {
        "scan": lambda table, place: table.scan().read_all()["v"].to_pylist()[-1],
        "get": lambda table, place: table.get([1])["v"].to_pylist()[0],
        "changes": lambda table, place: _last(table.changes(after=place)),
        "range": lambda table, place: _last(table.changes(after=place, until=_end(uri))),
    }[read]
    handle = _opened(uri, remote)
    (place,) = handle.change_offsets().values()
    before = newest(handle, place)
    assert before in (None, 2 + flushed)
    _logged(tmp_path, range(4, 53))
    entry = _entry(uri, place[0] + 1)
    held = entry.read_bytes()
    entry.unlink()
    if remote and read != "range":
        assert newest(handle, place) == before
        _let_time_pass(handle)
    for _ in range(3):
        with pytest.raises(mw.CorruptFileError, match=_TEXTS["gone"]) as caught:
            newest(handle, place)
        assert entry.name in str(caught.value)
    entry.write_bytes(held)
    assert newest(handle, place) == 52


@pytest.mark.parametrize("remote", [False, True])
def test_waiting_for_the_next_entry_costs_a_listing_in_30_seconds_or_a_probe(
    remote: bool, tmp_path: Path
) -> None:
    uri, _ = _logged(tmp_path)
    asked: list[str] = []

    def hook(operation: str, path: str, call: Call) -> Any:
        if "/wal" in path:
            asked.append(operation)
        return call()

    handle = opened_over(uri, lambda store: HookedStore(Remote(store) if remote else store, hook))
    for _ in range(3):
        handle.count_rows()
    for passes in (False, True, False):
        if passes:
            _let_time_pass(handle)
        asked.clear()
        handle.count_rows()
        if remote:
            assert asked.count("list") == passes and asked.count("exists") == 1
        else:
            assert asked == ["exists"] * 2


@pytest.mark.parametrize("how", ["gone", "folder"])
def test_an_open_writer_flushes_what_its_log_has_lost_whoever_tried_to_write_meanwhile(
    how: str, tmp_path: Path
) -> None:
    """Protocol rules 4 and 5: a claim that can't succeed would fence the only copy."""
    uri, _ = _logged(tmp_path, range(0))
    with mw.open_table(uri).writer() as writer:
        first = writer.upsert(rows(1)).positions
        for version in range(2, 5):
            writer.upsert(rows(version))
        (position,) = first.values()
        entry = _entry(uri, position + 1)
        entry.unlink()
        if how == "folder":
            entry.mkdir()
        context = datafusion.SessionContext()
        mw.register(context, "t", other := mw.open_table(uri))
        with patch.object(writing, "live_table_writer", lambda table: None):
            for _ in range(2):
                with pytest.raises(mw.CorruptFileError, match=_TEXTS[how]), mw.memwal_errors():
                    context.sql("INSERT INTO t VALUES (7, 7)").collect()
                with pytest.raises(mw.CorruptFileError, match=_TEXTS[how]):
                    other.writer().__enter__().upsert(rows(7))
        writer.upsert(rows(5))
        writer.flush()
    if how == "folder":
        entry.rmdir()
    table = mw.open_table(uri)
    assert table.scan().read_all().sort_by("id")["v"].to_pylist() == [5, 5]
    upsert_rows(table, rows(6))
    assert mw.open_table(uri).get([1])["v"].to_pylist() == [6]


_TEXTS = {"gone": "is missing, but later", "folder": "is a folder"}


def _logged(folder: Path, versions: range = range(1, 5)) -> tuple[str, int]:
    """A table with these versions in the WAL alone; its URI, and the last flushed position."""
    uri = str(folder / "t")
    if Path(uri).exists():
        table = mw.open_table(uri)
    else:
        table = mw.create_table(uri, SCHEMA, "id")
        flush_rows(table, rows(0))
    with table.writer() as writer:
        for version in versions:
            writer.upsert(rows(version))
    (manifest,) = manifests(uri).values()
    return uri, manifest.replay_after_wal_entry_position


def _entry(uri: str, position: int) -> Path:
    (region_id,) = manifests(uri)
    return Path(uri) / paths.wal_path(region_id, position)


def _last(batches: pa.RecordBatchReader) -> int | None:
    return next(reversed(batches.read_all()["v"].to_pylist()), None)


def _end(uri: str) -> list[int]:
    (place,) = mw.open_table(uri).change_offsets().values()
    return place


def _let_time_pass(table: mw.Table) -> None:
    for reader in table.collector.registry.regions(table.tracker.loaded):
        reader.log_end._listed -= 31


def _opened(uri: str, remote: bool) -> mw.Table:
    return opened_over(uri, lambda store: Remote(store) if remote else store)
