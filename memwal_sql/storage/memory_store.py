"""Objects in this process's memory: `memory://` tables, for tests and examples.

Everybody in the process who opens the same URI shares the same objects. Lance keeps its own objects
of such a table apart, so native readers do not see ours there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from memwal_sql.errors import NotFoundError
from memwal_sql.storage.object_store import ObjectMeta


class MemoryStore:
    """Objects below one root."""

    remote = False

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    @property
    def uri(self) -> str:
        """The root."""
        return self._uri

    def __repr__(self) -> str:
        return f"MemoryStore({self._uri!r})"

    def get(self, path: str) -> bytes:
        """The object's bytes."""
        try:
            return self._objects[path]
        except KeyError:
            raise NotFoundError(f"{self._uri}/{path} is not there") from None

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        """The last `length` bytes and the object's size."""
        data = self.get(path)
        return data[max(0, len(data) - length) :], len(data)

    def get_range(self, path: str, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end`."""
        return self.get(path)[start:end]

    def put(self, path: str, data: bytes) -> None:
        """Write or replace."""
        with self._lock:
            self._objects[path] = bytes(data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create; False when the name is taken."""
        with self._lock:
            return self._objects.setdefault(path, value := bytes(data)) is value

    def exists(self, path: str) -> bool:
        """Whether the object is there."""
        return path in self._objects

    def list(self, prefix: str) -> list[ObjectMeta]:
        """All objects below the folder `prefix`."""
        with self._lock:
            return [
                ObjectMeta(path, len(data))
                for path, data in self._objects.items()
                if path.startswith(prefix)
            ]

    def list_folders(self, prefix: str) -> list[str]:
        """The folders directly below the folder `prefix`."""
        below = (meta.path[len(prefix) :] for meta in self.list(prefix))
        return sorted({f"{prefix}{rest.partition('/')[0]}/" for rest in below if "/" in rest})

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects."""
        with self._lock:
            for path in paths:
                self._objects.pop(path, None)


_stores: dict[str, MemoryStore] = {}
_stores_lock = threading.Lock()


def memory_store(uri: str) -> MemoryStore:
    """The store of this process at `uri`."""
    root = uri.rstrip("/")
    with _stores_lock:
        return _stores.setdefault(root, MemoryStore(root))
