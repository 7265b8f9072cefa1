"""An exception of a signal handler at every place where one can come, in whatever owns descriptors,
locks and temporary files.

Nothing is closed that is somebody else's, nothing stays open or locked, temporary files are gone,
and the same call goes through afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from memwal_sql.cli import sinks
from memwal_sql.storage.cache import disk_cache
from memwal_sql.storage.cache.disk_cache import DiskCache, OriginalFile
from memwal_sql.storage.objects import (
    commit_log,
    descriptors,
    local,
    local_folders,
    whole_file,
)
from memwal_sql.storage.objects.commit_log import Commit, CommitState, SqliteCommitLog
from memwal_sql.storage.objects.local import LocalStore
from tests.model.interrupts import Interrupt, interrupted
from tests.soak import IS_SOAK

pytestmark = pytest.mark.slow

STRIDE = 1 if IS_SOAK else 80
_OF_FILES: tuple[ModuleType, ...] = (contextlib, descriptors, local, local_folders, whole_file)


class Spy:
    """Sees that descriptors are closed once, by whoever opened them."""

    def __init__(self, patched: pytest.MonkeyPatch, nameless: bool) -> None:
        self.wrong: list[int] = []
        self._nameless = nameless
        self._own: set[int] = set()
        self._open, self._close = os.open, os.close
        patched.setattr(os, "open", self._opened)
        patched.setattr(os, "close", self._closed)

    def _opened(self, path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if not self._nameless and flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no file system for it")
        number = self._open(path, flags, *args, **kwargs)
        self._own.add(number)
        return number

    def _closed(self, number: int) -> None:
        if number not in self._own:
            self.wrong.append(number)
            return
        self._own.remove(number)
        self._close(number)


def open_numbers(folder: Path) -> set[str]:
    """The descriptors of files below `folder`; other threads of the process have more."""
    numbers = set[str]()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it was closed meanwhile
            if os.readlink(f"/proc/self/fd/{number}").startswith(str(folder)):
                numbers.add(number)
    return numbers


Call = Callable[[int], object]


def store_at(folder: Path) -> LocalStore:
    store = LocalStore(str(folder / "store"))
    for name in ("a/b/one", "a/b/two", "a/c/one", "d"):
        store.put(name, b"there")
    return store


def of_store(call: Callable[[LocalStore, int], object]) -> Callable[[Path], Call]:
    def make(folder: Path) -> Call:
        return partial(call, store_at(folder))

    return make


def moved(store: LocalStore, step: int) -> None:
    names = ["a/c", "e/f"]
    source, target = names if store.exists("a/c/one") else reversed(names)
    store.move(source, target)


def deleted(store: LocalStore, step: int, *, bulk: bool) -> None:
    store.put(f"g/{step}/one", b"1")
    (store.delete_in_bulk if bulk else store.delete)([f"g/{step}/one", "g/none"])


def cache_at(folder: Path) -> DiskCache:
    return DiskCache(folder / "cache", 1000)


def added(cache: DiskCache, step: int) -> None:
    cache._failed = -float("inf")
    cache.add(f"t-{step}", lambda: [OriginalFile("f", 3, lambda a, b: b"abc"[a:b], True)], "t-")


def of_cache(folder: Path) -> Call:
    cache = cache_at(folder)

    def call(step: int) -> None:
        added(cache, step)
        found = cache.open(f"t-{step}")
        assert found is not None
        found.release()
        cache._evict(cache.folder / f"t-{step}")

    return call


def of_log(folder: Path) -> Call:
    file = folder / "log"

    def call(step: int) -> None:
        log = SqliteCommitLog(str(file), "memory://t")
        path = f"a/{step}"
        old = log.read(path)
        log.swap(path, old, Commit(path, "b", CommitState.COMMITTED))
        assert not log._lock.locked()

    return call


def of_user(folder: Path) -> Call:
    file = folder / "user" / "rows"
    file.parent.mkdir()

    def call(step: int) -> None:
        with sinks.replaced_file(file) as sink:
            sink.write(b"%d" % step)

    return call


PLACES: dict[str, tuple[tuple[ModuleType, ...], Callable[[Path], Call]]] = {
    "get": (_OF_FILES, of_store(lambda store, _: store.get("a/b/one"))),
    "get_tail": (_OF_FILES, of_store(lambda store, _: store.get_tail("a/b/one", 2))),
    "get_range": (_OF_FILES, of_store(lambda store, _: store.get_range("a/b/one", 1, 2))),
    "put": (_OF_FILES, of_store(lambda store, step: store.put(f"x/{step}/y", b"new"))),
    "put_if_absent": (
        _OF_FILES,
        of_store(lambda store, step: store.put_if_absent(f"x/{step}/z", b"new")),
    ),
    "put_if_absent of named files": (
        _OF_FILES,
        of_store(lambda store, step: store.put_if_absent(f"x/{step}/z", b"new")),
    ),
    "sync": (_OF_FILES, of_store(lambda store, _: store.sync("a"))),
    "move": (_OF_FILES, of_store(moved)),
    "list": (_OF_FILES, of_store(lambda store, _: store.list("a"))),
    "list_folders": (_OF_FILES, of_store(lambda store, _: store.list_folders("a"))),
    "delete": (_OF_FILES, of_store(partial(deleted, bulk=False))),
    "delete_in_bulk": (_OF_FILES, of_store(partial(deleted, bulk=True))),
    "cache": ((*_OF_FILES, disk_cache), of_cache),
    "commit log": ((contextlib, commit_log), of_log),
    "file of a user": ((contextlib, descriptors, whole_file, sinks), of_user),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_an_interrupt_anywhere_closes_nothing_twice_and_leaves_nothing_open(
    fast_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, (modules, make) in PLACES.items():
        folder = fast_folder / name
        folder.mkdir()
        call = make(folder)
        step, done = 1, False
        gc.collect()
        before = open_numbers(folder)
        while not done:
            with monkeypatch.context() as patched:
                spy = Spy(patched, nameless="named" not in name)
                try:
                    with interrupted(modules, step):
                        call(step)
                    done = True
                except Interrupt:
                    pass
                assert not spy.wrong, (name, step)
            call(step)
            step += STRIDE
        assert step > 50, name
        gc.collect()
        assert open_numbers(folder) <= before, name
        # Those are collected.
        left = [path for path in folder.rglob(".*") if not path.name.startswith((".tmp-", ".add"))]
        assert left == [], name
