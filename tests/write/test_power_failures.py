"""What was acknowledged is on the disk, and not in the memory of the operating system alone
(protocol rule 5)."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lance
import pytest

import memwal_sql as mw
from memwal_sql.bulk.rows import RowForm
from memwal_sql.bulk.stage import StageLimits
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.region.manifest import decode_manifest
from tests.each import each
from tests.maintain.life import NOW, SCHEMA, collect, create, rows, values
from tests.model.power import Disk
from tests.model.writing import upsert_rows

# Where to look first, which nothing rests on.
HINTS = {"version_hint.json", "latest_version_hint.json"}


def needed(table: mw.Table, disk: Disk, above: Path, below: str = "") -> set[str]:
    """Files in a folder of the table that a power failure would take now, hints aside."""
    lost = disk.lost(Path(table.uri), above)
    return {one for one in lost if one.startswith(below) and Path(one).name not in HINTS}


def _create(uri: str) -> mw.Table:
    return mw.create_table(uri, SCHEMA, "id")


def _enable(uri: str) -> mw.Table:
    lance.write_dataset(rows(50, 59, 0), uri)
    return mw.enable(uri, "id")


@pytest.mark.parametrize("make", [_create, _enable])
def test_a_table_is_there_as_soon_as_it_is_made(
    tmp_path: Path, make: Callable[[str], mw.Table]
) -> None:
    """With the folders that Lance made above it."""
    disk = Disk()
    with disk.watched():
        table = make(str(tmp_path / "a" / "b" / "t"))
        assert needed(table, disk, tmp_path) == set()


def _write(table: mw.Table) -> None:
    upsert_rows(table, rows(0, 3, 1))


def _write_buffered(table: mw.Table) -> None:
    with table.writer(durable=False, wal_flush_interval_s=100.0) as writer:
        writer.upsert(rows(0, 3, 1))
        writer.sync()


def _write_and_flush(table: mw.Table) -> None:
    with table.writer(memtable_rows=2) as writer:
        writer.upsert(rows(0, 3, 1))
        writer.delete([2])
        writer.flush()


def _publish(limits: StageLimits) -> Callable[[mw.Table], None]:
    def publish(table: mw.Table) -> None:
        stager = table.stager("job", RowForm(), limits)
        task = stager.stage(rows(0, 3, 1).to_batches())
        table.publisher().publish([task])

    return publish


WRITES: dict[str, Callable[[mw.Table], None]] = {
    "upsert": _write,
    "sync": _write_buffered,
    "flush": _write_and_flush,
    "publish rows": _publish(StageLimits()),
    "publish generations": _publish(StageLimits(generation=1)),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_rows_are_there_as_soon_as_a_write_returns(
    tmp_path: Path, write: Callable[[mw.Table], None]
) -> None:
    disk = Disk()
    with disk.watched():
        table = create(tmp_path)
        for _ in range(2):
            write(table)
            assert needed(table, disk, tmp_path) == set()


@pytest.mark.usefixtures("no_pauses")
@each("failures", [1, 2, 100])
def test_rows_whose_folder_cannot_be_synced_are_not_acknowledged(
    tmp_path: Path, failures: int
) -> None:
    """The entry can be read by then. What a later writer finds of it is there for good."""
    disk, left = Disk(), [0]
    with disk.watched():
        table, fsync = create(tmp_path), os.fsync

        def failing(file: int) -> None:
            if left[0] and stat.S_ISDIR(os.fstat(file).st_mode):
                left[0] -= 1
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            fsync(file)

        writer = table.writer()
        writer.upsert(rows(0, 3, 1))
        with patch.object(os, "fsync", failing):
            left[0] = failures
            if failures < 100:
                writer.upsert(rows(0, 3, 2))
                assert needed(table, disk, tmp_path) == set()
            else:
                with pytest.raises(mw.WriterFailedError, match="unknown whether 4 rows"):
                    writer.upsert(rows(0, 3, 2))
            left[0] = 0
        with suppress(mw.WriterFailedError):
            writer.close()
        upsert_rows(table, rows(4, 4, 3))
        assert needed(table, disk, tmp_path) == set()
        assert values(table) == {0: 2, 1: 2, 2: 2, 3: 2, 4: 3}


@pytest.mark.parametrize("write", [_write_and_flush, WRITES["publish generations"]])
def test_a_generation_is_there_before_a_manifest_lists_it(
    tmp_path: Path, write: Callable[[mw.Table], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries whose rows it holds are not replayed any more from then on."""
    disk, link = Disk(), os.link
    listed: list[int] = []

    def checked(*names: str, **folders: int) -> None:
        if str(names[-1]).endswith(".binpb"):
            manifest = decode_manifest(names[-1], Path(names[0]).read_bytes(), {})
            listed.append(len(manifest.flushed_generations))
            for generation in manifest.flushed_generations:
                (folder,) = Path(table.uri).glob(f"_mem_wal/*/{generation.path}")
                lost = disk.lost(folder, tmp_path)
                assert {one for one in lost if Path(one).name not in HINTS} == set()
        link(*names, **folders)

    with disk.watched():
        table = create(tmp_path)
        monkeypatch.setattr(os, "link", checked)
        write(table)
    assert max(listed) > 0


def test_a_region_that_others_made_is_there_when_a_write_returns(tmp_path: Path) -> None:
    """Native code syncs no folder that it makes, and another process may not have come to it."""
    _write(create(tmp_path))
    uri = tmp_path / "copy"
    shutil.copytree(tmp_path / "t", uri)  # as if nothing of it had ever been synced
    before, disk = {*uri.rglob("*")}, Disk()
    with disk.watched():
        _write(mw.open_table(uri))
    written = {str(one.relative_to(uri)) for one in {*uri.rglob("*")} - before}
    assert len([one for one in written if "/wal/" in one]) == 2  # a fence and the rows
    assert {one for one in written & disk.lost(uri, uri) if Path(one).name not in HINTS} == set()


def test_a_collection_syncs_the_base_table_once_and_only_if_it_deletes_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path)
    _write_and_flush(table)
    table.merge()
    synced: list[str] = []
    store: Any = type(open_store(table.uri))
    monkeypatch.setattr(store, "sync", lambda store, folder: synced.append(folder))
    collect(table, after=1, versions_older_than=NOW)
    assert "data" in synced and len(set(synced)) == len(synced)
    synced.clear()
    collect(table, after=2, versions_older_than=NOW)
    assert synced == []


@pytest.mark.parametrize("options", [{}, {"versions_older_than": NOW}])
def test_what_was_merged_is_there_before_its_generation_is_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """Lance syncs nothing: until then the generation is what a power failure would leave."""
    disk = Disk()
    with disk.watched():
        table = create(tmp_path)
        _write_and_flush(table)
        table.merge()
        assert needed(table, disk, tmp_path) > set()
        store: Any = open_store(table.uri)
        deleted: list[str] = []
        delete = type(store).delete_in_bulk

        def checked(store: Any, gone: Any) -> None:
            assert needed(table, disk, tmp_path) == set()
            deleted.extend(gone)
            delete(store, deleted)

        monkeypatch.setattr(type(store), "delete_in_bulk", checked)
        collect(table, after=1, **options)
    assert any("_gen_" in path for path in deleted)
