"""The operations that every store offers, and what is special about each."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
import pytest

from memwal_sql.errors import InvalidCallError, NotFoundError, StoreUnavailableError
from memwal_sql.storage.objects import local as local_store
from memwal_sql.storage.objects import whole_file
from memwal_sql.storage.objects.local import LocalStore
from memwal_sql.storage.objects.open import ObjectMeta, ObjectStore, lance_uri, open_store
from tests.model.racing import race
from tests.model.s3 import s3_server


def no_nameless_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As file systems and kernels behave that do not know `O_TMPFILE`."""
    open_file = os.open

    def refused(path: str, flags: int, *rest: int, **folder: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return open_file(path, flags, *rest, **folder)

    monkeypatch.setattr(whole_file.os, "open", refused)


@pytest.fixture(scope="module")
def s3_options() -> Iterator[dict[str, str]]:
    with s3_server("stores") as options:
        yield options


@pytest.fixture(params=["local", "local without nameless files", "file", "memory", "s3"])
def store(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    s3_options: dict[str, str],
) -> ObjectStore:
    name = uuid4().hex
    if request.param == "s3":
        return open_store(f"s3://stores/{name}", s3_options)
    if "nameless" in request.param:
        no_nameless_files(monkeypatch)
    uris = {"file": f"file://{tmp_path}/t", "memory": f"memory://{name}"}
    return open_store(uris.get(request.param, str(tmp_path / "t")))


def test_a_put_if_absent_creates_once(store: ObjectStore) -> None:
    assert store.put_if_absent("a/b/c", b"one")
    assert not store.put_if_absent("a/b/c", b"two")
    assert store.get("a/b/c") == b"one"
    assert store.exists("a/b/c")
    assert store.list("a/b") == [ObjectMeta("a/b/c", 3)]


def test_missing_objects(store: ObjectStore) -> None:
    assert not store.exists("x/y")
    assert store.list("x") == []
    assert store.list_folders("x") == []
    for read in (store.get, lambda path: store.get_tail(path, 1)):
        with pytest.raises(NotFoundError, match="x/y"):
            read("x/y")
    store.delete(["x/y"])


def test_parts_of_an_object(store: ObjectStore) -> None:
    store.put_if_absent("o", b"0123456789")
    stamp = store.stamp("o")
    assert store.get_tail("o", 4) == (b"6789", 10, stamp)
    assert store.get_tail("o", 40) == (b"0123456789", 10, stamp)
    assert store.get_range("o", 2, 5) == b"234"


def test_folders_are_listed_by_name_and_hints_are_replaced(store: ObjectStore) -> None:
    store.put("top/one/x", b"1")
    store.put("top/one/x", b"2")
    store.put("top/two/deep/y", b"")
    store.put("topping/three/z", b"")
    assert store.get("top/one/x") == b"2"
    assert sorted(store.list_folders("top")) == ["one", "two"]
    store.delete(["top/one/x", "top/two/deep/y"])
    assert store.list("top") == []


def test_listed_objects_say_when_they_were_written(store: ObjectStore) -> None:
    before = time.time() - 2  # S3 keeps seconds
    store.put_if_absent("a/b", b"1")
    (meta,) = store.list("a")
    assert meta.modified is not None and before <= meta.modified <= time.time() + 1


def test_many_objects_are_deleted_at_once_and_those_gone_are_passed_over(
    store: ObjectStore,
) -> None:
    for number in range(5):
        store.put_if_absent(f"a/{number}", b"")
    store.delete_in_bulk([])
    store.delete_in_bulk(["a/0", "a/none", "a/3", "a/4"])
    assert sorted(meta.path for meta in store.list("a")) == ["a/1", "a/2"]
    store.put_if_absent("top/b/c/d", b"")
    store.put_if_absent("top/b/c/e/f", b"")
    store.delete_in_bulk(["top/b/c/d", "top/b/c/e/f"])
    assert store.list_folders("top") == []


@pytest.mark.slow
def test_what_is_long_is_put_in_parts(s3_options: dict[str, str]) -> None:
    store, content = open_store("s3://stores/long", s3_options), os.urandom(40 << 20)
    store.put("a/b", memoryview(content))
    assert store.get("a/b") == content
    assert store.list("a") == [ObjectMeta("a/b", 40 << 20)]


def test_what_a_killed_put_left_is_no_object_but_a_leftover(store: ObjectStore) -> None:
    store.put_if_absent("a/b", b"1")
    assert store.leftovers("a") == []
    if isinstance(store, LocalStore):
        (Path(store.uri) / "a" / ".tmp-1234").write_bytes(b"half")
        assert [meta.path for meta in store.list("a")] == ["a/b"]
        assert store.leftovers("a") == [ObjectMeta("a/.tmp-1234", 4)]


def test_one_of_many_racing_threads_wins(store: ObjectStore) -> None:
    won = race(*(partial(store.put_if_absent, "race", b"%d" % number) for number in range(8)))
    assert store.get("race") == b"%d" % won.index(True) and won.count(True) == 1


@pytest.mark.parametrize("nameless", [True, False])
def test_a_local_put_is_synced_before_it_is_visible_and_leaves_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nameless: bool
) -> None:
    """Protocol rule 5: file and folder are synced before a write counts as durable."""
    store = open_store(tmp_path)
    if not nameless:
        no_nameless_files(monkeypatch)
    events: list[str] = []
    real_fsync, real_link = os.fsync, os.link

    def fsync(file: int) -> None:
        name = os.readlink(f"/proc/self/fd/{file}")
        events.append("folder" if os.path.isdir(name) else "file")
        real_fsync(file)

    def link(*names: str, **folders: int) -> None:
        events.append("link")
        real_link(*names, **folders)

    store.put_if_absent("wal/first", b"makes the folder")
    monkeypatch.setattr(local_store.os, "fsync", fsync)
    monkeypatch.setattr(local_store.os, "link", link)
    assert store.put_if_absent("wal/x", b"data")
    assert events == ["file", "link", "folder"]
    assert sorted(os.listdir(tmp_path / "wal")) == ["first", "x"]


def test_a_synced_folder_is_synced_with_all_below_and_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Lance wrote for a generation is durable before the manifest points to it."""
    store = open_store(tmp_path)
    store.put("region/generation/data/file", b"x")
    store.put("region/other", b"x")
    synced: set[str] = set()
    monkeypatch.setattr(
        local_store.os, "fsync", lambda file: synced.add(os.readlink(f"/proc/self/fd/{file}"))
    )
    store.sync("region/generation")
    below = ("", "region", "region/generation")
    inside = ("region/generation/data", "region/generation/data/file")
    assert synced == {str(tmp_path / name) for name in (*below, *inside)}
    missing = open_store(tmp_path / "missing")
    with pytest.raises(StoreUnavailableError):
        missing.sync("nowhere")


def test_a_synced_table_is_synced_with_its_place_as_far_as_it_may_be_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a disk is mounted at was there before the table."""
    store = open_store(tmp_path / "a/b/t")
    store.put("file", b"x")
    mounted, synced = str(tmp_path / "a"), set()
    monkeypatch.setattr(os.path, "ismount", lambda path: str(path) == mounted)
    monkeypatch.setattr(
        local_store.os, "fsync", lambda file: synced.add(os.readlink(f"/proc/self/fd/{file}"))
    )
    store.sync("")
    assert synced == {mounted + name for name in ("", "/b", "/b/t", "/b/t/file")}


def test_a_new_folder_is_made_durable_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of folders stays small."""
    store, synced = LocalStore(str(tmp_path)), list[str]()
    fsync = local_store.os.fsync

    def note(file: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{file}"))
        fsync(file)

    monkeypatch.setattr(local_store.os, "fsync", note)
    for again in (True, False, True):
        store.put("a/b/one", b"")
        assert synced == ([str(tmp_path), str(tmp_path / "a")] if again else [])
        synced.clear()
        if not again:
            store.delete(["a/b/one"])  # and the folders that this leaves empty
    store._durable.update((f"earlier/{number}", 0) for number in range(1 << 16))
    store.put("c/x", b"")
    assert len(store._durable) <= 10
    # Whoever has removed a folder, and made it again, may not have come to making it durable.
    store.put("a/b/one", b"")
    (tmp_path / "a/b").rename(tmp_path / "a/old")
    (tmp_path / "a/b").mkdir()
    synced.clear()
    store.put("a/b/two", b"")
    store.put("a/b/three", b"")
    assert synced == [str(tmp_path / "a")]


@pytest.mark.parametrize(
    ("call", "number", "said"),
    [
        ("open", errno.EACCES, "permission denied"),
        ("open", errno.EROFS, "read-only"),
        ("write", errno.ENOSPC, r"disk is full.*free"),
    ],
)
def test_a_folder_that_takes_no_writes_is_named_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, said: str
) -> None:
    original = getattr(os, call)

    def refused(path: str | int, flags: Any, *rest: Any, **folder: Any) -> Any:
        if call == "write" or flags & os.O_WRONLY:
            raise OSError(number, os.strerror(number))
        return original(path, flags, *rest, **folder)

    monkeypatch.setattr(local_store.os, call, refused)
    with pytest.raises(StoreUnavailableError, match=said) as caught:
        open_store(tmp_path).put_if_absent("a", b"data")
    assert str(tmp_path / "a") in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_memory_tables_are_shared_in_the_process_and_with_lance() -> None:
    uri = f"memory://{uuid4().hex}/table"
    open_store(uri).put_if_absent("ours", b"1")
    assert open_store(uri + "/").exists("ours")
    assert not open_store(f"memory://{uuid4().hex}").exists("ours")
    written = lance.write_dataset(pa.table({"a": [1]}), lance_uri(uri))
    assert lance.dataset(lance_uri(uri)).version == written.version
    manifest = "_versions/18446744073709551614.manifest"
    assert open_store(uri).exists(manifest)
    assert open_store(uri).get_tail(manifest, 4)[0] == b"LANC"


def test_a_misspelt_option_is_named_and_its_value_is_not() -> None:
    for uri in ("s3://bucket/table", "/tmp/somewhere", "memory://x"):
        with pytest.raises(InvalidCallError, match="aws_secret_acess_key") as caught:
            open_store(uri, {"aws_secret_acess_key": "hunter2secret", "region": "us-east-1"})
        assert "hunter2secret" not in str(caught.value)
    with pytest.raises(InvalidCallError) as caught:
        open_store("s3://bucket/table", {"client_max_retries": "hunter2secret"})
    assert "hunter2secret" not in str(caught.value)


def test_a_file_that_vanishes_while_it_is_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Native code stages its puts in files beside them."""
    store = open_store(tmp_path)
    store.put("wal/a", b"1")
    store.put("wal/a#1", b"22")
    walk = local_store.walk

    def vanishing(folder: int, path: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        entries = list(walk(folder, path))
        (tmp_path / "wal" / "a#1").unlink()
        yield from entries

    monkeypatch.setattr(local_store, "walk", vanishing)
    assert store.list("wal") == [ObjectMeta("wal/a", 1)]
