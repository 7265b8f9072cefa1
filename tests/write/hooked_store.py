"""A store that does what a test tells it to, at any operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from memwal_sql.errors import OutcomeUnknownError, StoreUnavailableError
from memwal_sql.storage.object_store import ObjectMeta, ObjectStore

Call = Callable[[], Any]
Hook = Callable[[str, str, Call], Any]


class HookedStore:
    """Passes every operation through `hook(operation, path, call)`; `call()` does it."""

    def __init__(self, inner: ObjectStore, hook: Hook) -> None:
        self._inner = inner
        self.hook = hook

    @property
    def uri(self) -> str:
        return self._inner.uri

    def get(self, path: str) -> bytes:
        return self.hook("get", path, lambda: self._inner.get(path))

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        return self.hook("get_tail", path, lambda: self._inner.get_tail(path, length))

    def get_range(self, path: str, start: int, end: int) -> bytes:
        return self.hook("get_range", path, lambda: self._inner.get_range(path, start, end))

    def put(self, path: str, data: bytes) -> None:
        self.hook("put", path, lambda: self._inner.put(path, data))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self.hook("put_if_absent", path, lambda: self._inner.put_if_absent(path, data))

    def exists(self, path: str) -> bool:
        return self.hook("exists", path, lambda: self._inner.exists(path))

    def list(self, prefix: str) -> list[ObjectMeta]:
        return self.hook("list", prefix, lambda: self._inner.list(prefix))

    def list_folders(self, prefix: str) -> list[str]:
        return self.hook("list_folders", prefix, lambda: self._inner.list_folders(prefix))

    def delete(self, paths: Iterable[str]) -> None:
        kept = list(paths)
        self.hook("delete", ",".join(kept), lambda: self._inner.delete(kept))


class Crash(BaseException):
    """The process is gone: no code of it catches this, and its store does nothing more."""


def crash_at(nth: int, when: str) -> Hook:
    """Crash before or after the `nth` operation (from 1) and refuse all later ones."""
    count = 0

    def hook(operation: str, path: str, call: Call) -> Any:
        nonlocal count
        count += 1
        if count > nth or (count == nth and when == "before"):
            raise Crash
        result = call()
        if count == nth:
            raise Crash
        return result

    return hook


def lost_reply(nth: int, answer: str, on: str = "put_if_absent") -> Hook:
    """The `nth` put (from 1) goes wrong once.

    `answer`: `"timeout, landed"`, `"timeout, not landed"`, `"exists, landed"` (a retry below us met
    its own object), `"exists, not landed"`, `"unavailable"` (nothing was written, for certain).
    """
    count = 0

    def hook(operation: str, path: str, call: Call) -> Any:
        nonlocal count
        if operation != on:
            return call()
        count += 1
        if count != nth:
            return call()
        if answer.endswith(", landed"):
            call()
        if answer.startswith("timeout"):
            raise OutcomeUnknownError(f"{path}: timed out")
        if answer == "unavailable":
            raise StoreUnavailableError(f"{path}: the disk is full")
        return False

    return hook
