"""A byte-bounded cache of facts that never change, each computed once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast
from weakref import WeakSet

DEFAULT_MAX_BYTES = 256 * 1024 * 1024
T = TypeVar("T")


_caches: WeakSet[ByteCache] = WeakSet()


def forget(identity: Hashable) -> None:
    """Let go of what every cache of this process keeps of a source that no new query reads.

    Under a stream of merges the caches would else be full of versions that are gone. Their keys are
    tuples with identities of sources among their parts, or with identities of shares of these.
    """
    for cache in list(_caches):
        cache.drop(identity)


def _is_of(key: Hashable, identity: Hashable) -> bool:
    parts = key if isinstance(key, tuple) else ()
    return any(one == identity or _is_share(one, identity) for one in parts)


def _is_share(part: object, identity: Hashable) -> bool:
    return isinstance(part, tuple) and part[:1] == (identity,)


class ByteCache:
    """Least recently used entries are dropped when the bytes held exceed `max_bytes`.

    An entry larger than a quarter of the bound is handed out but not kept, so that one large
    table can't push out everything else. Safe to use from several threads.
    """

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._computing: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()
        _caches.add(self)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._bytes

    @property
    def largest(self) -> int:
        """The largest entry that is kept, in bytes."""
        return self._max_bytes // 4

    def get(self, key: Hashable) -> Any | None:
        """The entry, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: Any, nbytes: int) -> None:
        """Keep `value`, which must not be None, unless it is too large."""
        with self._lock:
            old = self._entries.pop(key, None)
            if old is not None:
                self._bytes -= old[1]
            if nbytes > self.largest:
                return
            self._entries[key] = (value, nbytes)
            self._bytes += nbytes
            while self._bytes > self._max_bytes:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._bytes -= dropped

    def compute(self, key: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> T:
        """The entry of `key`; made, and kept if it fits, when it is missing.

        Threads that ask for the same missing key wait for the first one. An error reaches the
        caller whose `make` raised it, and the next one tries again.
        """
        found = self.get(key)
        if found is not None:
            return cast(T, found)
        with self.locked(key):
            found = self.get(key)
            if found is not None:
                return cast(T, found)
            value = make()
            self.put(key, value, size(value))
            return value

    def drop(self, identity: Hashable) -> None:
        """See `forget`."""
        with self._lock:
            for key in [key for key in self._entries if _is_of(key, identity)]:
                self._bytes -= self._entries.pop(key)[1]

    def locked(self, key: Hashable) -> threading.Lock:
        """The lock to hold while the entry of `key` is computed."""
        with self._lock:
            if len(self._computing) > 10_000:
                self._computing = {k: lock for k, lock in self._computing.items() if lock.locked()}
            return self._computing.setdefault(key, threading.Lock())
