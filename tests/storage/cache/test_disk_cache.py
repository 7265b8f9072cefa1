"""Copies of folders on a local disk: whole or not there, within a bound, shared by processes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from memwal_sql.errors import StoreUnavailableError
from memwal_sql.storage.cache.disk_cache import CachedFolder, DiskCache, OriginalFile

ROOM = 10_000


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
    assert cache.add("one", original(content), "one")
    assert read(cache.open("one")) == content
    assert not cache.add("one", original({}), "one")
    assert read(DiskCache(cache.folder, ROOM).open("one")) == content


@pytest.mark.parametrize("file", [*content_of(2), "files.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "longer", "zeros"])
def test_what_is_damaged_is_never_opened_and_is_copied_anew(
    tmp_path: Path, file: str, damage: str
) -> None:
    cache, content = DiskCache(tmp_path, ROOM), content_of(2)
    cache.add("one", original(content), "one")
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
    cache.add("one", original(content), "one")
    assert read(cache.open("one")) == content


def test_what_was_opened_the_longest_ago_goes_first(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 3_500)
    for number, name in enumerate("abc"):
        assert cache.add(name, original({"f": bytes(1_000)}), name)
        os.utime(tmp_path / name / "files.json", (number, number))
    assert cache.open("a") is not None
    assert cache.add("d", original({"f": bytes(1_000)}), "d")
    assert {path.name for path in tmp_path.iterdir() if path.name[0] != "."} == {"a", "c", "d"}
    assert not cache.add("e", original({"f": bytes(4_000)}), "e")
    assert {path.name for path in tmp_path.iterdir() if path.name[0] != "."} == {"a", "c", "d"}


def test_what_is_read_stays_and_nothing_is_added_beyond_the_bound(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 2_500)
    cache.add("a", original({"f": b"a" * 2_000}), "a")
    found = DiskCache(tmp_path, 2_500).open("a")
    assert not cache.add("b", original({"f": bytes(1_000)}), "b")
    assert read(found) == {"f": b"a" * 2_000}
    del found
    assert cache.add("b", original({"f": bytes(1_000)}), "b")
    assert cache.open("a") is None


def test_files_that_a_like_folder_has_are_linked_unless_they_are_damaged(tmp_path: Path) -> None:
    cache, shared = DiskCache(tmp_path, 4_000), b"s" * 2_000
    cache.add("t-1", original({"data/s": shared, "m": b"1"}), "t")
    unread = [OriginalFile("data/s", 2_000, lambda start, end: pytest.fail("it is there"), True)]
    assert cache.add("t-2", [*original({"m": b"2"}), *unread], "t")
    assert read(cache.open("t-1")) == {"data/s": shared, "m": b"1"}
    assert read(cache.open("t-2")) == {"data/s": shared, "m": b"2"}
    (tmp_path / "t-1" / "data" / "s").write_bytes(b"x" * 2_000)
    assert cache.open("t-2") is None
    assert cache.add("t-3", original({"data/s": shared, "m": b"3"}), "t")
    assert read(cache.open("t-3")) == {"data/s": shared, "m": b"3"}


def test_the_bound_is_kept_where_what_was_to_be_linked_is_evicted(tmp_path: Path) -> None:
    cache, shared = (
        DiskCache(tmp_path, 1_000),
        [OriginalFile("s", 400, lambda *_: bytes(400), True)],
    )
    assert cache.add("t-1", shared, "t")
    assert cache.add("other", original({"f": bytes(450)}), "other")
    found = cache.open("other")
    assert not cache.add("t-2", [*shared, *original({"m": bytes(200)})], "t")
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
    assert cache.add("one", [OriginalFile("f", 10, forks)], "one")
    (descriptor,) = inherited
    assert cache.add("two", original({"f": b"1"}), "two")
    os.close(descriptor)


def test_a_disk_that_takes_nothing_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nothing")):
        cache = DiskCache(folder, ROOM)
        assert not cache.add("one", original(content_of(3)), "one")
        assert cache.open("one") is None


@pytest.mark.parametrize("error", [StoreUnavailableError("gone"), OSError("full")])
def test_a_copy_that_fails_leaves_nothing(tmp_path: Path, error: Exception) -> None:
    def fails(start: int, end: int) -> bytes:
        raise error

    cache = DiskCache(tmp_path, ROOM)
    short = OriginalFile("short", 10, lambda start, end: b"123")
    for bad in (OriginalFile("bad", 10, fails), short, OriginalFile("../up", 0, fails)):
        assert not cache.add("one", [*original(content_of(4)), bad], "one")
    assert [path.name for path in tmp_path.iterdir()] == [".adding"]


def test_leftovers_of_a_process_that_died_go(tmp_path: Path) -> None:
    (tmp_path / ".tmp-dead").mkdir()
    (tmp_path / ".tmp-dead" / "half").write_bytes(bytes(9_000))
    cache = DiskCache(tmp_path, ROOM)
    assert cache.add("one", original(content_of(5)), "one")
    assert not (tmp_path / ".tmp-dead").exists()


def test_a_reader_learns_that_its_copy_was_removed(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, ROOM)
    cache.add("one", original(content_of(6)), "one")
    found = cache.open("one")
    assert found is not None and not found.is_gone
    shutil.rmtree(tmp_path)
    assert found.is_gone
    cache.add("one", original(content_of(6)), "one")
    assert found.is_gone and read(cache.open("one")) == content_of(6)


def hammer(folder: Path, seed: int, steps: int) -> int:
    """How many copies were opened; each is compared with what it is of, and stays meanwhile."""
    random, cache, opened = np.random.default_rng(seed), DiskCache(folder, 20_000), 0
    for _ in range(steps):
        number = int(random.integers(12))
        found = cache.open(f"n{number}")
        if found is None:
            cache.add(f"n{number}", original(content_of(number)), f"n{number}")
        else:
            for path, data in content_of(number).items():
                assert (found.path / path).read_bytes() == data
            opened += 1
    assert cache.nbytes() <= 20_000 + 12 * 400  # and their lists
    return opened


def test_processes_share_a_folder(tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, get_context("spawn")) as processes:
        under_way = [processes.submit(hammer, tmp_path, seed, 80) for seed in range(2)]
        assert sum(one.result() for one in under_way) > 10
