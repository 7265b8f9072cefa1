"""Copies of files on a local disk (`cache_dir`): fewer requests, and never another answer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.base.tasks import background_by
from memwal_sql.storage.cache.copies import copy_of_base
from memwal_sql.storage.cache.disk_cache import OriginalFile
from memwal_sql.storage.cache.settings import CACHE
from tests.maintain.life import create, flush, merge_all, rows, values
from tests.model.opened import Remote, opened_over
from tests.model.process import as_another_process
from tests.model.resident import another_cache
from tests.model.s3 import Requests, s3_server
from tests.model.writing import merge_rows
from tests.program import run
from tests.soak import IS_SOAK

KEYS = 60


@pytest.fixture
def folder(tmp_path: Path, within: Any) -> Path:
    """Where copies are, which are made at once, one after the other."""
    one_by_one = RLock()

    def start(call: Callable[[], object]) -> None:
        with one_by_one:
            call()

    within(background_by(start))
    within(another_cache())
    mw.configure(cache_dir=tmp_path / "cache", cache_bytes="64MiB")
    return tmp_path / "cache" / "memwal_sql"


def opened(uri: str) -> mw.Table:
    return opened_over(uri, Remote)


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name[0] != "."] if folder.exists() else []


def damage(folder: Path, random: np.random.Generator) -> None:
    """Files of the copies are not any more what they were, first of all those with rows."""
    files = sorted(path for entry in entries(folder) for path in entry.rglob("*") if path.is_file())
    files += 5 * [path for path in files if path.parent.name == "data"]
    for path in [files[number] for number in random.integers(len(files), size=3)] if files else []:
        data = np.fromfile(path, np.uint8) if path.exists() else np.empty(0, np.uint8)
        match random.integers(4):
            case 0 | 1:
                data[random.integers(len(data), size=len(data) // 8)] ^= 5
                data.tofile(path)
            case 2:
                data[: len(data) // 2].tofile(path)
            case _:
                path.unlink(missing_ok=True)


@pytest.mark.parametrize("seed", range(200 if IS_SOAK else 2))
def test_answers_are_those_without_copies(tmp_path: Path, folder: Path, seed: int) -> None:
    """Under evictions, damage, merges, and other tables at the same place; by readers that open it
    at each step and by one that stays open, from whom the copies are taken away."""
    random = np.random.default_rng(seed)
    table, expected = create(tmp_path, regions=2), dict[int, int]()
    staying = opened(table.uri)
    were_there = False
    for step in range(12):
        match random.integers(6):
            case 0:
                merge_all(table)
            case 1:
                table.build_indexes()
            case 2:
                shutil.rmtree(table.uri)
                table, expected = create(tmp_path, regions=2), {}
                staying = opened(table.uri)
        with table.writer() as writer:
            first = int(random.integers(KEYS))
            writer.upsert(rows(first, first + 20, step))
            expected |= dict.fromkeys(range(first, first + 21), step)
            gone = list({int(key) for key in random.integers(KEYS, size=3)})
            writer.delete(pa.table({"id": gone}))
            expected = {key: val for key, val in expected.items() if key not in gone}
            if random.integers(4):
                writer.flush()
        were_there |= bool(entries(folder))
        match random.integers(4):
            case 0:
                damage(folder, random)
                staying = opened(table.uri)
            case 1:
                shutil.rmtree(folder, ignore_errors=True)
        most = ("64MiB", 60_000, 9_000)[random.integers(3)]
        mw.configure(cache_dir=folder.parent, cache_bytes=most)
        for reader in random.permutation([opened(table.uri), staying]):
            with as_another_process():
                assert values(reader) == expected
                for key in map(int, random.integers(KEYS + 20, size=3)):
                    live = [expected[key]] if key in expected else []
                    assert reader.get(key)["val"].to_pylist() == live
    assert were_there


def test_copies_of_the_table_that_was_at_a_place_before_are_not_read(
    tmp_path: Path, folder: Path
) -> None:
    """The same versions and generations, with other rows."""
    for val in (1, 2):
        table = create(tmp_path, regions=2)
        flush(table, rows(0, 99, val))
        merge_all(table)
        flush(table, rows(0, 9, val + 10))
        for _ in range(2):
            with as_another_process():
                assert set(values(opened(table.uri)).values()) == {val, val + 10}
        assert len(entries(folder)) == 3 * val
        shutil.rmtree(table.uri)


def test_a_copy_that_came_to_have_the_files_of_another_version_is_not_read(
    tmp_path: Path, folder: Path
) -> None:
    """As where a table is made again while the version of the same number is copied."""
    table = create(tmp_path)
    flush(table, rows(0, 9, 1))
    merge_all(table)
    reader = opened(table.uri)
    base, store = reader._tracker.loaded, reader._context.store

    def path_of_copy(etag: str) -> Path | None:
        copy = copy_of_base(CACHE.get(), store, "t", base.dataset, etag, base.found.path)
        assert copy is not None
        return copy.path

    for etag, is_read in ((base.etag, True), ("that of another version", False)):
        assert path_of_copy(etag) is None  # it is made then
        assert (path_of_copy(etag) is not None) == is_read


@pytest.mark.parametrize("merged", [False, True])
def test_a_reader_goes_on_whose_copies_are_removed(
    tmp_path: Path, folder: Path, merged: bool
) -> None:
    table = create(tmp_path)
    flush(table, rows(0, 9_999, 1))
    if merged:
        merge_all(table)
    table.snapshot_regions()
    with as_another_process():
        expected = values(opened(table.uri))
        version = opened(table.uri).version
        readers = opened(table.uri), opened_over(table.uri, Remote, version=version)
        for reader in readers:
            reader.count_rows()  # which opens the copies, and none of their files with rows
        shutil.rmtree(folder)
    for reader in readers:
        with as_another_process():  # nothing is resident that was read before
            assert values(reader) == expected


def test_searches_go_through_copies(tmp_path: Path, folder: Path) -> None:
    columns = pa.schema({"id": pa.int64(), "text": pa.string(), "v": pa.list_(pa.float32(), 4)})
    table = mw.create_table(tmp_path / "t", columns, "id")
    content = {
        "id": list(range(300)),
        "text": [f"word{number % 7}" for number in range(300)],
        "v": [[float(number), 0.0, 0.0, 1.0] for number in range(300)],
    }
    merge_rows(table, content)
    table.create_index("text", "INVERTED")
    table.create_index("v", "IVF_FLAT", num_partitions=2)
    merge_rows(table, {name: some[:20] for name, some in content.items()})

    def answers() -> list[Any]:
        with as_another_process():
            reader = opened(table.uri)
            return [
                sorted(reader.full_text_search("text", "word3", 300)["id"].to_pylist()),
                reader.vector_search("v", [7.0, 0.0, 0.0, 1.0], 3)["id"].to_pylist(),
                reader.get(299)["text"].to_pylist(),
            ]

    expected = answers()
    assert entries(folder)
    described = {"metadata.lance", "auxiliary.idx"}  # which are read with the version's manifest
    for part in ("data", "_indices"):
        for path in (Path(table.uri) / part).rglob("*.*"):
            if path.name not in described:
                path.unlink()
    assert answers() == expected


def test_a_process_that_begins_with_copies_asks_for_what_may_be_new_alone(folder: Path) -> None:
    seen = Requests()
    with s3_server("tables", around=seen.around) as options:
        schema = pa.schema([pa.field("id", pa.int64(), False), ("val", pa.int64())])
        uri, regions = "s3://tables/copied", [mw.bucket("id", 2)]
        made = mw.create_table(uri, schema, "id", regions=regions, storage_options=options)
        with made.writer() as writer:
            writer.upsert(rows(0, 99, 1))
            writer.flush()
            made.merge()
            writer.upsert(rows(0, 49, 2))
            writer.flush()

        def asked() -> list[str]:
            with as_another_process():
                table = mw.open_table(uri, storage_options=options)
                seen.take()
                assert table.get(7)["val"].to_pylist() == [2]
                assert table.get(77)["val"].to_pylist() == [1]
                assert table.count_rows("val = 2") == 50
            return seen.take()

        def of_files(requests: list[str]) -> list[str]:
            parts = ("/data/", "/_indices/", "/bloom_filter.bin", "_gen_2/")
            return [one for one in requests if any(part in one for part in parts)]

        assert of_files(asked())
        assert not of_files(asked())


@pytest.mark.usefixtures("folder")
def test_what_else_is_in_the_folder_stays(tmp_path: Path) -> None:
    theirs = [tmp_path / name / "files.json" for name in ("theirs", ".tmp-theirs")]
    for path in theirs:
        path.parent.mkdir()
        path.write_bytes(bytes(900))
    mw.configure(cache_dir=tmp_path, cache_bytes=1_000)
    cache = CACHE.get()
    assert cache is not None
    for name in ("one", "two"):
        files = [OriginalFile("f", 700, lambda start, end: bytes(700))]
        assert cache.add(name, partial(list, files), name)
    assert cache.open("one") is None
    assert all(path.exists() for path in theirs)
    assert cache.folder.stat().st_mode & 0o777 == 0o700


def test_a_table_on_a_local_disk_is_not_copied(tmp_path: Path, folder: Path) -> None:
    table = create(tmp_path)
    with table.writer() as writer:
        writer.upsert(rows(0, 99, 1))
        writer.flush()
    with as_another_process():
        assert mw.open_table(table.uri).get(7)["val"].to_pylist() == [1]
    assert not entries(folder)


@pytest.mark.usefixtures("folder")
def test_what_can_not_be_meant_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ({"cache_dir": 3}, {"cache_dir": tmp_path, "cache_bytes": "much"}):
        with pytest.raises(mw.InvalidCallError, match="must be"):
            mw.configure(**wrong)
    with another_cache(), pytest.raises(mw.InvalidCallError, match="needs a cache_dir"):
        mw.configure(cache_bytes=5)
    mw.configure(cache_dir=tmp_path, cache_bytes=0)
    assert CACHE.get() is None


def test_the_environment_says_what_is_not_set(
    tmp_path: Path, within: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    within(another_cache())
    monkeypatch.setenv("MEMWAL_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("MEMWAL_CACHE_BYTES", "1MiB")
    found = CACHE.get()
    assert found is not None and (found.folder, found.max_bytes) == (
        tmp_path / "memwal_sql",
        1 << 20,
    )


@pytest.mark.usefixtures("folder")
def test_what_is_not_given_stays_as_it_is(tmp_path: Path) -> None:
    for given, folder, most in (
        ({"cache_dir": tmp_path / "other"}, "other", 64 << 20),
        ({"cache_bytes": "1MiB"}, "other", 1 << 20),
        ({}, "other", 1 << 20),
        ({"cache_dir": tmp_path}, "", 1 << 20),
    ):
        mw.configure(**given)  # type: ignore[arg-type]
        found = CACHE.get()
        assert found is not None
        assert found.folder == tmp_path / folder / "memwal_sql"
        assert found.max_bytes == most


def test_the_command_line_reads_copies(tmp_path: Path, folder: Path) -> None:
    with s3_server("tables") as options:
        uri = "s3://tables/shell"
        made = mw.create_table(uri, rows(0, 0, 0).schema, "id", storage_options=options)
        with made.writer() as writer:
            writer.upsert(rows(0, 99, 1))
            writer.flush()
        with as_another_process():
            assert mw.open_table(uri, storage_options=options).count_rows() == 100
        copies = entries(folder)
        assert len(copies) == 2
        for copy in copies:
            os.utime(copy / "files.json", (1, 1))
        command = ["-m", "memwal_sql", "--cache-dir", str(tmp_path / "cache")]
        given = [word for item in options.items() for word in ("--storage-option", "=".join(item))]
        query = ["sql", uri, "SELECT sum(val) AS n FROM t", "--output", "csv", *given]
        done = run(*command, *query)
        assert done.returncode == 0 and done.stdout.split() == ['"n"', "100"], done.stderr
        assert all((copy / "files.json").stat().st_mtime > 1 for copy in copies)
