"""No store leaves its root: not by the parts of a path, and not by links among its folders."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from memwal_sql.errors import CorruptFileError, InvalidCallError
from memwal_sql.storage.objects.commit_log import SqliteCommitLog
from memwal_sql.storage.objects.local_folders import MOST_LEVELS, refuse_links_below
from memwal_sql.storage.objects.open import ObjectStore, open_store
from memwal_sql.storage.objects.two_phase import TwoPhaseStore
from tests.each import each
from tests.model.folder_state import folder_state

READS: dict[str, Callable[[ObjectStore, str], object]] = {
    "get": lambda store, path: store.get(path),
    "get_tail": lambda store, path: store.get_tail(path, 4),
    "get_range": lambda store, path: store.get_range(path, 0, 4),
    "exists": lambda store, path: store.exists(path),
}
CHANGES: dict[str, Callable[[ObjectStore, str], object]] = {
    "put": lambda store, path: store.put(path, b"new"),
    "put_if_absent": lambda store, path: store.put_if_absent(path, b"new"),
    "delete": lambda store, path: store.delete(["first", path]),
    "delete_in_bulk": lambda store, path: store.delete_in_bulk(["first", path]),
    "move from": lambda store, path: store.move(path, "moved"),
    "move to": lambda store, path: store.move("moving", path),
}
LISTINGS: dict[str, Callable[[ObjectStore, str], object]] = {
    "list": lambda store, path: store.list(path),
    "list_folders": lambda store, path: store.list_folders(path),
    "leftovers": lambda store, path: store.leftovers(path),
}
ODD = (
    "",
    "/",
    ".",
    "..",
    "../x",
    "a/..",
    "a/../../x",
    "a//b",
    "/etc/passwd",
    "a/",
    "a/./b",
    "a\0b",
)


@each("kind", ["local", "memory", "remote", "two phases"])
def test_an_odd_path_is_refused_by_every_operation_of_every_store(
    tmp_path: Path, kind: str
) -> None:
    """The remote store is asked for nothing: there is none at its address."""
    beside = tmp_path / "x"
    beside.write_text("beside")
    uris = {"memory": f"memory://{uuid4().hex}", "remote": "s3://nowhere/t"}
    options = {"skip_signature": "true", "aws_region": "x"} if kind == "remote" else None
    store = open_store(uris.get(kind, str(tmp_path / "t")), options)
    if kind == "two phases":
        log = SqliteCommitLog(str(tmp_path / "log.sqlite"), store.uri)
        store = TwoPhaseStore(store, log)
    for name, call in {**READS, **CHANGES, **LISTINGS}.items():
        if (kind == "memory" and name.startswith("move")) or (
            name == "leftovers" and kind in ("memory", "remote")
        ):
            continue  # nothing to move, and nothing left
        if name == "move to" and kind == "remote":
            continue  # refused below: what is to be moved is asked for first
        for path in ODD:
            with pytest.raises(InvalidCallError, match=r"is not a path in a table"):
                call(store, path)
    assert beside.read_text() == "beside"


@pytest.fixture
def linked(tmp_path: Path) -> tuple[ObjectStore, Path]:
    """A store in which `a/link` and `a/b/c/link` lead to the folder that comes with it."""
    victim = tmp_path / "victim"
    for name in ("file", ".tmp-1", "inner/file", "inner/.tmp-2", "inner/deep/file"):
        (victim / name).parent.mkdir(parents=True, exist_ok=True)
        (victim / name).write_text("precious")
    (victim / "empty").mkdir()
    (tmp_path / "t/a/b/c").mkdir(parents=True)
    (tmp_path / "t/moving").mkdir()
    (tmp_path / "t/first").write_text("first")
    for link in ("t/a/link", "t/a/b/c/link", "t/top"):
        os.symlink(victim, tmp_path / link)
    return open_store(tmp_path / "t"), victim


@pytest.mark.parametrize("link", ["a/link", "a/b/c/link", "top"])
def test_nothing_is_changed_or_listed_through_a_link(
    linked: tuple[ObjectStore, Path], link: str
) -> None:
    store, victim = linked
    before, folders = folder_state(victim), sorted(victim.rglob("*"))
    for change in CHANGES.values():
        for below in ("file", "inner/file", "inner/deep/file", "empty/new", "new/new"):
            with pytest.raises(CorruptFileError, match=rf"{link} is a symbolic link"):
                change(store, f"{link}/{below}")
    for listing in LISTINGS.values():
        for below in ("", "/inner"):
            with pytest.raises(CorruptFileError, match=rf"{link} is a symbolic link"):
                listing(store, f"{link}{below}")
    assert folder_state(victim) == before and sorted(victim.rglob("*")) == folders


def test_a_link_to_a_folder_is_an_object_to_those_who_list_above_it(
    linked: tuple[ObjectStore, Path],
) -> None:
    """It can be deleted, which leaves alone what it leads to, and is never missed for a folder."""
    store, victim = linked
    before = folder_state(victim)
    assert {meta.path for meta in store.list("a")} == {"a/link", "a/b/c/link"}
    assert store.leftovers("a") == []
    with pytest.raises(CorruptFileError, match="a/link is a symbolic link"):
        store.list_folders("a")
    with pytest.raises(CorruptFileError, match="top is a symbolic link"):
        store.move("top", "moved")
    store.delete(["a/b/c/link"])
    store.delete_in_bulk(["a/link", "top"])
    assert store.list("a") == [] and folder_state(victim) == before


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "t")
    store = open_store(tmp_path / "t")
    assert store.put_if_absent("a/b", b"1") and not store.put_if_absent("a/b", b"2")
    store.put("a/c/d", b"3")
    assert store.get("a/b") == b"1" and store.list_folders("a") == ["c"]
    assert sorted(meta.path for meta in store.list("a")) == ["a/b", "a/c/d"]
    store.move("a/c", "moved")
    store.delete(["a/b"])
    assert folder_state(tmp_path / "elsewhere").keys() == {"moved/d"}


def test_links_to_files_are_read_and_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """Tools that keep versions of data put links to files; a pipe would be waited for for ever."""
    store = open_store(tmp_path / "t")
    store.put("a/b", b"0123")
    (tmp_path / "kept").write_bytes(b"0123456789")
    os.symlink(tmp_path / "kept", tmp_path / "t/a/link")
    os.mkfifo(tmp_path / "t/a/pipe")
    os.symlink("/dev/zero", tmp_path / "t/a/zero")
    os.symlink(tmp_path / "nowhere", tmp_path / "t/a/dangling")
    assert store.get("a/link") == b"0123456789" and store.get_tail("a/link", 2)[:2] == (b"89", 10)
    assert store.get_range("a/b", 2, 2**40) == b"23"
    for name in ("get", "get_tail", "get_range"):
        for odd in ("pipe", "zero"):
            with pytest.raises(CorruptFileError, match=f"a/{odd} is a pipe or a device"):
                READS[name](store, f"a/{odd}")
        with pytest.raises(CorruptFileError, match="a/dangling"):
            READS[name](store, "a/dangling")
    store.delete(["a/link"])
    assert (tmp_path / "kept").exists()


def test_folders_that_are_endlessly_deep_are_named(tmp_path: Path) -> None:
    store = open_store(tmp_path / "t")
    deep = "a" + "/d" * MOST_LEVELS + "/file"
    store.put(deep, b"")
    assert [meta.path for meta in store.list("a")] == [deep]
    store.delete([deep])
    store.put("a/b", b"")
    folder = os.open(tmp_path / "t/a", os.O_RDONLY)
    for _ in range(20 * MOST_LEVELS):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(os.open("deep", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)
    for listed in (store.list, store.leftovers):
        with pytest.raises(CorruptFileError, match=r"a/d.* levels deep.*move it away"):
            listed("a")


def test_whoever_follows_links_is_told_of_them_first(linked: tuple[ObjectStore, Path]) -> None:
    store, _ = linked
    with pytest.raises(CorruptFileError, match="symbolic link"):
        refuse_links_below(store.uri)
    store.delete(["a/b/c/link", "a/link", "top"])
    refuse_links_below(store.uri)
