"""Copies of folders on a local disk: whole or not there, within a bound, shared by processes."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from memwal_sql.errors import InvalidCallError, NotFoundError, StoreUnavailableError
from memwal_sql.storage.cache import disk_cache
from memwal_sql.storage.cache.disk_cache import CachedFolder, DiskCache, OriginalFile
from memwal_sql.storage.cache.settings import CacheSettings
from tests.each import each
from tests.model.process import forks
from tests.program import run

pytestmark = pytest.mark.slow

ROOM = 10_000


def add(cache: DiskCache, name: str, files: list[OriginalFile], like: str | None = None) -> bool:
    return cache.add(name, lambda: files, like or name)


def original(content: Mapping[str, bytes]) -> list[OriginalFile]:
    return [
        OriginalFile(path, len(data), lambda start, end, data=data: data[start:end])
        for path, data in content.items()
    ]


def content_of(seed: int, most: int = 2_000) -> dict[str, bytes]:
    random = np.random.default_rng(seed)
    names = ["data/a.lance", "data/b.lance", "_indices/x/page.lance", "bloom_filter.bin"]
    return {name: random.bytes(int(random.integers(0, most))) for name in names}


def read(found: CachedFolder | None) -> dict[str, bytes] | None:
    if found is None:
        return None
    files = [path for path in found.path.rglob("*") if path.is_file()]
    everything = {str(path.relative_to(found.path)): path.read_bytes() for path in files}
    del everything["files.json"]
    return everything


def test_a_copy_is_what_was_copied(tmp_path: Path) -> None:
    cache, content = DiskCache(tmp_path / "new" / "folder", ROOM), content_of(1)
    assert cache.open("one") is None
    assert add(cache, "one", original(content))
    assert read(cache.open("one")) == content
    assert not add(cache, "one", original({}))
    assert read(DiskCache(cache.folder, ROOM).open("one")) == content


@each("file", [*content_of(2), "files.json"])
@each("damage", ["flip", "cut", "remove", "longer", "zeros"])
def test_what_is_damaged_is_never_opened_and_is_copied_anew(
    tmp_path: Path, file: str, damage: str
) -> None:
    cache, content = DiskCache(tmp_path, ROOM), content_of(2)
    add(cache, "one", original(content))
    path = tmp_path / "one" / file
    data = path.read_bytes()
    damaged = {
        "flip": data[:5] + bytes([data[5] ^ 1]) + data[6:],
        "cut": data[:-1],
        "longer": data + b"x",
        "zeros": bytes(len(data)),
    }
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes(damaged[damage])
    assert read(cache.open("one")) is None
    add(cache, "one", original(content))
    assert read(cache.open("one")) == content


def test_a_list_that_names_other_files_is_damaged(tmp_path: Path) -> None:
    """Nothing outside of the copy is read, and no device or pipe, which would never end."""
    beside = tmp_path / "beside"
    beside.write_bytes(b"")
    cache, content = DiskCache(tmp_path / "cache", ROOM), {"f": b"rows"}
    right = [4, zlib.crc32(b"rows")]
    lists: list[object] = [{}, [], {"f": right, "../../beside": [0, 0]}, {"f": right, "": [0, 0]}]
    lists += [{"f": right, name: [0, 0]} for name in ("/dev/zero", "pipe", "link", str(beside))]
    for wrong in lists:
        assert add(cache, "one", original(content))
        copy = cache.folder / "one"
        os.mkfifo(copy / "pipe")
        (copy / "link").symlink_to(beside)
        (copy / "files.json").write_text(json.dumps(wrong))
        assert cache.open("one") is None, wrong
    assert add(cache, "one", original(content))
    assert read(cache.open("one")) == content


def test_a_folder_that_others_could_have_filled_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer there decides what queries read; a link leads evictions to what is not ours."""
    theirs = tmp_path / "theirs"
    for name in (".tmp-work", "project"):
        (theirs / name).mkdir(parents=True)
        (theirs / name / "files.json").write_text("{}")
    cases: dict[str, Callable[[Path], object]] = {
        "symbolic link": lambda folder: folder.symlink_to(theirs),
        "no folder": lambda folder: folder.write_text(""),
        "mode 777": lambda folder: (folder.mkdir(), folder.chmod(0o777)),
        "mode 770": lambda folder: (folder.mkdir(), folder.chmod(0o770)),
        "belongs to user": lambda folder: (
            folder.mkdir(mode=0o700),
            monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1),
        ),
    }
    for place, (why, make) in enumerate(cases.items()):
        given = tmp_path / str(place)
        folder = given / "memwal_sql"
        cache = DiskCache(folder, 10, clock=lambda place=place: place * 1e6)
        assert not add(cache, "early", original({"f": bytes(20)}))  # there may be none yet
        given.mkdir(exist_ok=True)
        make(folder)
        settings = CacheSettings()
        with pytest.raises(InvalidCallError, match=rf"{folder} .*{why}.*: remove it, or give"):
            settings.set(given, "1MiB")
        assert settings.get() is None
        before = sorted(tmp_path.rglob("*"))
        assert not add(cache, "one", original({"f": b"rows"})) and cache.open("one") is None
        assert cache.open("project") is None
        assert sorted(tmp_path.rglob("*")) == before


def test_what_was_opened_the_longest_ago_goes_first(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 3_500)
    for number, name in enumerate("abc"):
        assert add(cache, name, original({"f": bytes(1_000)}))
        os.utime(tmp_path / name / "files.json", (number, number))
    assert cache.open("a") is not None
    assert add(cache, "d", original({"f": bytes(1_000)}))
    assert {path.name for path in tmp_path.iterdir() if path.name[0] != "."} == {"a", "c", "d"}
    assert not add(cache, "e", original({"f": bytes(4_000)}))
    assert {path.name for path in tmp_path.iterdir() if path.name[0] != "."} == {"a", "c", "d"}


def test_a_copy_that_another_process_evicts_meanwhile_keeps_none_from_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, there = DiskCache(tmp_path, 2_500), Path.glob
    assert add(cache, "a", original({"f": bytes(2_000)}))

    def glob(self: Path, pattern: str) -> list[Path]:
        return [*there(self, pattern), self / "gone" / "files.json"]

    monkeypatch.setattr(Path, "glob", glob)
    assert add(cache, "b", original({"f": bytes(2_000)}))


def test_what_is_read_stays_and_nothing_is_added_beyond_the_bound(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 2_500)
    add(cache, "a", original({"f": b"a" * 2_000}))
    found = DiskCache(tmp_path, 2_500).open("a")
    assert not add(cache, "b", original({"f": bytes(1_000)}))
    assert read(found) == {"f": b"a" * 2_000}
    del found
    assert add(cache, "b", original({"f": bytes(1_000)}))
    assert cache.open("a") is None


def test_files_that_a_like_folder_has_are_linked_unless_they_are_damaged(tmp_path: Path) -> None:
    cache, shared = DiskCache(tmp_path, 4_000), b"s" * 2_000
    add(cache, "t-1", original({"data/s": shared, "m": b"1"}), "t")
    unread = [OriginalFile("data/s", 2_000, lambda start, end: pytest.fail("it is there"), True)]
    assert add(cache, "t-2", [*original({"m": b"2"}), *unread], "t")
    assert read(cache.open("t-1")) == {"data/s": shared, "m": b"1"}
    assert read(cache.open("t-2")) == {"data/s": shared, "m": b"2"}
    (tmp_path / "t-1" / "data" / "s").write_bytes(b"x" * 2_000)
    assert cache.open("t-2") is None
    assert add(cache, "t-3", original({"data/s": shared, "m": b"3"}), "t")
    assert read(cache.open("t-3")) == {"data/s": shared, "m": b"3"}


def test_the_bound_is_kept_where_what_was_to_be_linked_is_evicted(tmp_path: Path) -> None:
    cache, shared = (
        DiskCache(tmp_path, 1_000),
        [OriginalFile("s", 400, lambda *_: bytes(400), True)],
    )
    assert add(cache, "t-1", shared, "t")
    assert add(cache, "other", original({"f": bytes(450)}))
    found = cache.open("other")
    assert not add(cache, "t-2", [*shared, *original({"m": bytes(200)})], "t")
    assert read(found) is not None and cache.nbytes() < 1_000


def test_who_has_inherited_the_lock_of_adding_keeps_nobody_from_it(tmp_path: Path) -> None:
    inherited: list[int] = []
    lock = tmp_path / ".adding"

    def forks(start: int, end: int) -> bytes:
        """As a fork meanwhile has it: the same open file."""
        for number in map(int, os.listdir("/proc/self/fd")):
            with suppress(OSError):  # that of the folder itself
                if not inherited and os.path.samestat(os.fstat(number), lock.stat()):
                    inherited.append(os.dup(number))
        return bytes(end - start)

    cache = DiskCache(tmp_path, ROOM)
    assert add(cache, "one", [OriginalFile("f", 10, forks)])
    (descriptor,) = inherited
    assert add(cache, "two", original({"f": b"1"}))
    os.close(descriptor)


def test_a_disk_that_takes_nothing_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nothing")):
        cache = DiskCache(folder, ROOM)
        assert not add(cache, "one", original(content_of(3)))
        assert cache.open("one") is None


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def failing(error: Exception) -> Callable[[int, int], bytes]:
        def read(start: int, end: int) -> bytes:
            raise error

        return read

    for bad in (
        OriginalFile("bad", 10, failing(OSError("full"))),
        OriginalFile("bad", 10, failing(StoreUnavailableError("gone"))),
        OriginalFile("short", 10, lambda start, end: b"123"),
        OriginalFile("../up", 0, lambda start, end: b""),
    ):
        assert not add(DiskCache(tmp_path, ROOM), "one", [*original(content_of(4)), bad])
    assert [path.name for path in tmp_path.iterdir()] == [".adding"]


@each(
    "error, waits",
    [
        (StoreUnavailableError("denied"), True),
        (OSError("full"), True),
        (NotFoundError("collected"), False),
    ],
)
def test_a_copy_that_failed_is_not_tried_again_at_once(
    tmp_path: Path, error: Exception, waits: bool
) -> None:
    """Where its source is gone, others are copied all the same."""

    def fails() -> list[OriginalFile]:
        raise error

    now = [0.0]
    cache = DiskCache(tmp_path, ROOM, lambda: now[0])
    assert not cache.add("a", fails, "a")
    assert add(cache, "b", original(content_of(1))) is not waits
    now[0] = 61.0
    assert add(cache, "c", original(content_of(1)))


def test_leftovers_of_a_process_that_died_go(tmp_path: Path) -> None:
    (tmp_path / ".tmp-dead").mkdir()
    (tmp_path / ".tmp-dead" / "half").write_bytes(bytes(9_000))
    cache = DiskCache(tmp_path, ROOM)
    assert add(cache, "one", original(content_of(5)))
    assert not (tmp_path / ".tmp-dead").exists()


def test_a_reader_learns_that_its_copy_was_removed(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, ROOM)
    add(cache, "one", original(content_of(6)))
    found = cache.open("one")
    assert found is not None and not found.is_gone
    shutil.rmtree(tmp_path)
    assert found.is_gone
    add(cache, "one", original(content_of(6)))
    assert found.is_gone and read(cache.open("one")) == content_of(6)


def test_a_file_is_checked_once_as_long_as_nobody_touches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []

    def checksum(path: Path) -> int:
        checked.append(path.name)
        return zlib.crc32(path.read_bytes())

    monkeypatch.setattr(disk_cache, "_checksum", checksum)
    cache, shared = DiskCache(tmp_path, ROOM), [OriginalFile("s", 9, lambda *_: b"123456789", True)]
    add(cache, "t-1", shared, "t")
    for _ in range(2):
        assert cache.open("t-1") is not None
    add(cache, "t-2", [*shared, *original({"m": b"2"})], "t")
    assert cache.open("t-2") is not None
    assert sorted(checked) == ["m", "s"]
    (tmp_path / "t-2" / "m").write_bytes(b"3")
    os.utime(tmp_path / "t-2" / "m", (1, 1))
    assert cache.open("t-2") is None
    assert DiskCache(tmp_path, ROOM).open("t-1") is not None
    assert sorted(checked) == ["m", "m", "s", "s"]


def test_open_copies_are_bounded(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, ROOM)
    add(cache, "one", original({"f": b"1"}))
    found = [cache.open("one") for _ in range(300)]
    assert len([one for one in found if one is not None]) == 256
    assert _open_files(tmp_path) == 256
    found.clear()
    assert cache.open("one") is not None and _open_files(tmp_path) <= 1


def _open_files(folder: Path) -> int:
    """How many files of a folder this process has open."""
    count = 0
    for handle in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the list, and those of others that close
            count += os.readlink(f"/proc/self/fd/{handle}").startswith(str(folder))
    return count


ENDING = """
import sys
from functools import partial
from pathlib import Path
from threading import Event, main_thread
from exec_nodes.base.tasks import in_background
from memwal_sql.storage.cache.disk_cache import DiskCache, OriginalFile

begun = Event()

def read(start, end):
    print("read", flush=True)
    begun.set()
    main_thread().join()  # the process has come to its end
    return bytes(end - start)

cache = DiskCache(Path(sys.argv[1]), 10_000)
files = [OriginalFile(name, 5, read) for name in "ab"]
for name in ("one", "two"):
    assert in_background(partial(cache.add, name, partial(list, files), name), is_long=True)
assert begun.wait(60)
"""


def test_a_process_that_ends_waits_for_no_copy_and_leaves_no_part_of_one(tmp_path: Path) -> None:
    done = run("-c", ENDING, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "read\n", "")
    assert [path.name for path in tmp_path.iterdir()] == [".adding"]


def hammer(folder: Path, seed: int, steps: int) -> int:
    """How many copies were opened; each is compared with what it is of, and stays meanwhile."""
    random, cache, opened = np.random.default_rng(seed), DiskCache(folder, 20_000), 0
    for _ in range(steps):
        number = int(random.integers(12))
        found = cache.open(f"n{number}")
        if found is None:
            add(cache, f"n{number}", original(content_of(number)))
        else:
            for path, data in content_of(number).items():
                assert (found.path / path).read_bytes() == data
            opened += 1
    assert cache.nbytes() <= 20_000 + 12 * 400  # and their lists
    return opened


def test_processes_share_a_folder(tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, forks()) as processes:
        under_way = [processes.submit(hammer, tmp_path, seed, 80) for seed in range(2)]
        assert sum(one.result() for one in under_way) > 10
