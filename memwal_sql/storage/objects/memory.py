"""Tables in this process's memory: `memory://name`, for tests and examples.

Everybody in the process who opens the same name shares the same objects. Lance keeps such a table
between two handles only under its scheme `shared-memory`, see `lance_uri`; its own files, which it
alone can write, are read here through its file session.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Hashable, Iterable, Sequence

from lance.file import LanceFileSession

from exec_nodes.base.lazy import lazy_property
from memwal_sql.errors import NotFoundError, UnsupportedError
from memwal_sql.storage.objects.protocol import (
    Content,
    Metas,
    Names,
    ObjectEnd,
    ObjectMeta,
    check_path,
    checked,
)

SCHEMES = ("memory", "shared-memory")
_LANCE_SCHEME = "shared-memory"


def is_in_memory(uri: str) -> bool:
    """Whether the place is in this process's memory."""
    scheme, separator, _ = uri.partition("://")
    return bool(separator) and scheme in SCHEMES


def lance_uri(uri: str) -> str:
    """The URI under which Lance shares a table in memory; other URIs as they are."""
    return f"{_LANCE_SCHEME}://{uri.partition('://')[2]}" if is_in_memory(uri) else uri


class MemoryStore:
    """Objects below one root."""

    remote = False
    service = None

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._objects: dict[str, bytes] = {}
        self._written: dict[str, float] = {}
        self._lock = threading.Lock()

    @property
    def uri(self) -> str:
        return self._uri

    def __repr__(self) -> str:
        return f"MemoryStore({self._uri!r})"

    def get(self, path: str) -> bytes:
        check_path(path)
        data = self._objects.get(path)
        return data if data is not None else self._get_from_lance(path)

    def get_tail(self, path: str, length: int) -> ObjectEnd:
        stamp = self._written.get(path, 0.0)  # before the bytes: of older ones it is not trusted
        data = self.get(path)
        return ObjectEnd(data[max(0, len(data) - length) :], len(data), stamp)

    def get_range(self, path: str, start: int, end: int) -> bytes:
        return self.get(path)[start:end]

    def put(self, path: str, data: Content) -> None:
        check_path(path)
        with self._lock:
            self._objects[path], self._written[path] = bytes(data), time.time()

    def put_if_absent(self, path: str, data: bytes) -> bool:
        check_path(path)
        with self._lock:
            if path in self._objects:
                return False
            self._objects[path], self._written[path] = bytes(data), time.time()
            return True

    def sync(self, folder: str) -> None:
        """Nothing to do."""

    def refuse_links(self, _: Sequence[str] = ()) -> None:
        """Nothing: it has none."""

    def move(self, source: str, target: str) -> None:
        """Not possible: Lance alone can write its files in memory."""
        raise UnsupportedError(
            f"{source} of {self._uri} can't be moved in memory: stage writes in a folder or an "
            "object store"
        )

    def exists(self, path: str) -> bool:
        check_path(path)
        return path in self._objects or self._lance.contains(path)

    def stamp(self, path: str) -> Hashable | None:
        """The time of the write; unknown for Lance's own objects."""
        return self._written.get(path, 0.0) if self.exists(path) else None

    def list(self, prefix: str) -> list[ObjectMeta]:
        """All objects below the folder `prefix`; of Lance's only the names are known."""
        check_path(prefix)
        return self._below(f"{prefix}/")

    def list_folders(self, prefix: str) -> Names:
        check_path(prefix)
        start = f"{prefix}/"
        below = (meta.path[len(start) :] for meta in self._below(start))
        return sorted({rest.partition("/")[0] for rest in below if "/" in rest})

    def delete(self, paths: Iterable[str]) -> None:
        for path in checked(paths):
            with self._lock:
                ours = self._objects.pop(path, None)
                self._written.pop(path, None)
            if ours is None and self._lance.contains(path):
                self._lance.delete_file(path)

    def delete_in_bulk(self, paths: Iterable[str]) -> None:
        self.delete(paths)

    def leftovers(self, prefix: str) -> Metas:
        """None: a put here is done or not begun."""
        return []

    @lazy_property
    def _lance(self) -> LanceFileSession:
        return LanceFileSession(lance_uri(self._uri))

    def _below(self, start: str) -> Metas:
        with self._lock:
            metas = [ObjectMeta(p, len(d), self._written[p]) for p, d in self._objects.items()]
        ours = {meta.path for meta in metas}
        metas += [ObjectMeta(path, 0) for path in self._lance.list() if path not in ours]
        return [meta for meta in metas if meta.path.startswith(start)]

    def _get_from_lance(self, path: str) -> bytes:
        if not self._lance.contains(path):
            raise NotFoundError(f"{self._uri}/{path} is not there")
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "object")
            self._lance.download_file(path, copy)
            with open(copy, "rb") as file:
                return file.read()


_stores: dict[str, MemoryStore] = {}
_stores_lock = threading.Lock()


def memory_store(uri: str) -> MemoryStore:
    """The store of this process at `uri`."""
    root = lance_uri(uri).rstrip("/")
    with _stores_lock:
        return _stores.setdefault(root, MemoryStore(uri.rstrip("/")))
