"""A byte-bounded cache of facts that never change, each computed once."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast
from weakref import WeakSet, WeakValueDictionary

from exec_nodes.base.tasks import breathe

DEFAULT_MAX_BYTES = 256 * 1024 * 1024
T = TypeVar("T")
Subject = tuple[Hashable, ...]

_caches: WeakSet[ByteCache] = WeakSet()
# What was let go of last. It is let go of again each time, as queries and threads that were under
# way may have put something of it back.
_gone: deque[Hashable] = deque(maxlen=64)
_lock = threading.Lock()


def forget(*identities: Hashable) -> None:
    """Let go of what every cache of this process keeps of things that no new query reads.

    Under a stream of merges the caches would else be full of versions that are gone. The subjects
    of their keys have such identities among their parts: of sources, or of shares of these, URIs of
    generations, uuids of the base table's index segments, etags of its versions.
    """
    with _lock:
        _gone.extend(identities)
        gone = frozenset(_gone)
    for cache in list(_caches):
        cache.drop(lambda subject: any(_is_of(part, gone) for part in subject))


def _is_of(part: Hashable, gone: frozenset[Hashable]) -> bool:
    return part in gone or (isinstance(part, tuple) and len(part) > 0 and part[0] in gone)


def _subject(key: Hashable) -> Subject:
    return key[:3] if isinstance(key, tuple) else (key,)


class ByteCache:
    """Least recently used entries are dropped when the bytes held exceed `max_bytes`.

    An entry larger than a quarter of the bound is handed out but not kept, so that one large
    table can't push out everything else. The first three parts of a key are its subject, which many
    entries may share, as posting lists of one index do: what is let go of is found among subjects.
    Safe to use from several threads.
    """

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._by_subject: dict[Subject, set[Hashable]] = {}
        self._computing: WeakValueDictionary[Hashable, threading.Lock] = WeakValueDictionary()
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
            if key in self._entries:
                self._remove(key)
            if nbytes > self.largest:
                return
            self._entries[key] = (value, nbytes)
            self._by_subject.setdefault(_subject(key), set()).add(key)
            self._bytes += nbytes
            while self._bytes > self._max_bytes:
                self._remove(next(iter(self._entries)))
        breathe()

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

    def drop(self, is_gone: Callable[[Subject], bool]) -> None:
        """Let go of the entries whose subjects are gone."""
        with self._lock:
            for subject in [one for one in self._by_subject if is_gone(one)]:
                for key in list(self._by_subject[subject]):
                    self._remove(key)

    def _remove(self, key: Hashable) -> None:
        """Let go of an entry; `_lock` is held."""
        self._bytes -= self._entries.pop(key)[1]
        subject = _subject(key)
        keys = self._by_subject[subject]
        keys.remove(key)
        if not keys:
            del self._by_subject[subject]

    def locked(self, key: Hashable) -> threading.Lock:
        """The lock to hold while the entry of `key` is computed."""
        with self._lock:
            return self._computing.setdefault(key, threading.Lock())
