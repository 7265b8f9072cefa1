"""Artefacts of immutable files in memory, under one budget for the process.

An artefact is derived once from files that never change (a column of a fragment, the keys of a
generation, the postings of an index) and kept until memory is needed or no new query reads its
origin. Anything may be evicted at any time: the next user derives it again.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar, cast
from weakref import WeakValueDictionary

from exec_nodes.base.errors import InvalidCallError
from exec_nodes.base.machine import machine_memory

T = TypeVar("T")

_MIB = 1024 * 1024
_SMALLEST_DEFAULT, _LARGEST_DEFAULT = 256 * _MIB, 4096 * _MIB
# Overhead of an artefact: its key, its owners and the store's entry. 340 to 800 bytes were measured
# in Python 3.11.
ENTRY_BYTES = 500
# The number of works whose savings are remembered.
_MOST_ACCOUNTS = 4096
_UNITS = {"": 1, "kib": 1024, "mib": _MIB, "gib": 1024 * _MIB, "tib": _MIB * _MIB}
_MEMORY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(|[KMGT]iB)\s*", re.IGNORECASE)


class Key(NamedTuple):
    """Names an artefact.

    Attributes:
        kind: its kind, as `ResidentStore.kinds` lists it.
        owners: identities of its origins: a table, a version, a source, a fragment, a segment of an
            index; it is evicted with any of them.
        detail: distinguishes artefacts of the same kind and owners.
    """

    kind: str
    owners: tuple[Hashable, ...]
    detail: Hashable = None


@dataclass
class KindUse:
    """The resident artefacts of one kind, and how often they were of use.

    Attributes:
        entries: artefacts.
        bytes: of memory.
        hits: how often one was asked for and there.
        misses: how often one was asked for and missing.
    """

    entries: int = 0
    bytes: int = 0
    hits: int = 0
    misses: int = 0


@dataclass(slots=True)
class _Entry:
    value: Any
    nbytes: int
    used: bool = False
    let_go: Callable[[], object] | None = None


class _Kind:
    """The artefacts of one kind, the least recently used first."""

    def __init__(self) -> None:
        self.entries: OrderedDict[Key, _Entry] = OrderedDict()
        self.use = KindUse()


class ResidentStore:
    """Artefacts of a process, within `max_bytes`; each counts with its own bytes and `ENTRY_BYTES`.
    Safe to use from several threads.

    When the budget is exceeded, the kind that takes most of it loses its least recently used
    artefacts: columns of a large scan do not push out the keys that lookups need. An artefact
    larger than `largest` is handed out and not kept.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        self._max_bytes = max_bytes
        self._clear()

    def _clear(self) -> None:
        self._bytes = 0
        self._kinds: defaultdict[str, _Kind] = defaultdict(_Kind)
        self._by_owner: dict[Hashable, set[Key]] = {}
        self._computing: WeakValueDictionary[Key, threading.Lock] = WeakValueDictionary()
        # Queries that were under way may put something of it back: it is evicted again each time.
        self._evicted: deque[Hashable] = deque(maxlen=64)
        self._accounts: OrderedDict[Key, int] = OrderedDict()
        self._let_go: deque[Callable[[], object]] = deque()
        self._lock = threading.Lock()

    @property
    def max_bytes(self) -> int:
        """The budget in bytes. Raises InvalidCallError if `MEMWAL_MEMORY` is not a valid size."""
        if self._max_bytes is None:
            self._max_bytes = default_budget()
        return self._max_bytes

    @max_bytes.setter
    def max_bytes(self, value: int) -> None:
        with self._lock:
            self._max_bytes = value
            self._shrink()
        self._call_let_go()

    @property
    def nbytes(self) -> int:
        """Bytes resident."""
        return self._bytes

    @property
    def largest(self) -> int:
        """The largest artefact that is kept, in bytes: a quarter of the budget."""
        return self.max_bytes // 4

    def kinds(self) -> dict[str, KindUse]:
        """The resident artefacts, by kind."""
        with self._lock:
            return {name: replace(kind.use) for name, kind in sorted(self._kinds.items())}

    def all_keys(self) -> list[Key]:
        """The resident artefacts."""
        with self._lock:
            return [key for kind in self._kinds.values() for key in kind.entries]

    def used(self, kind: str) -> list[Key]:
        """The artefacts of one kind that were used since they were made: unused ones are not worth
        extending."""
        with self._lock:
            return [key for key, entry in self._kinds[kind].entries.items() if entry.used]

    def take_use(self, key: Key) -> bool:
        """Whether it is resident, and was used since it was made and since the last call of
        this."""
        with self._lock:
            entry = self._kinds[key.kind].entries.get(key)
            used = entry is not None and entry.used
            if entry is not None:
                entry.used = False
            return used

    def get(self, key: Key) -> Any | None:
        """The artefact, or None."""
        with self._lock:
            kind = self._kinds[key.kind]
            entry = kind.entries.get(key)
            if entry is None:
                kind.use.misses += 1
                return None
            kind.use.hits += 1
            kind.entries.move_to_end(key)
            entry.used = True
            return entry.value

    def get_all(self, keys: Sequence[Key]) -> list[Any]:
        """The artefacts of some keys, one or more of one kind; None in place of a missing one."""
        with self._lock:
            kind = self._kinds[keys[0].kind]
            entries = [kind.entries.get(key) for key in keys]
            for key, entry in zip(keys, entries, strict=True):
                if entry is None:
                    kind.use.misses += 1
                else:
                    kind.use.hits += 1
                    kind.entries.move_to_end(key)
                    entry.used = True
            return [None if entry is None else entry.value for entry in entries]

    def put(
        self, key: Key, value: Any, nbytes: int, let_go: Callable[[], object] | None = None
    ) -> None:
        """Keep `value`, which must not be None, unless it is too large. `let_go` is called, without
        the store's lock, once it is not kept any more."""
        with self._lock:
            self._put(key, _Entry(value, nbytes + ENTRY_BYTES, let_go=let_go))
        self._call_let_go()

    def resize(self, key: Key, nbytes: int) -> bool:
        """Note what an artefact takes by now, which is evicted if that is too large. Whether it was
        resident."""
        with self._lock:
            kind = self._kinds[key.kind]
            entry = kind.entries.get(key)
            if entry is not None and nbytes > self.largest:
                self._remove(key)
            elif entry is not None:
                grown = nbytes + ENTRY_BYTES - entry.nbytes
                entry.nbytes += grown  # no call until it is counted, see `_put`
                kind.use.bytes += grown
                self._bytes += grown
                self._shrink()
        self._call_let_go()
        return entry is not None

    def _put(self, key: Key, entry: _Entry) -> None:
        kind = self._kinds[key.kind]
        if key in kind.entries:
            self._remove(key)
        if entry.nbytes > self.largest + ENTRY_BYTES:
            self._let_go.extend(filter(None, [entry.let_go]))
            return
        for owner in _owners(key):
            self._by_owner.setdefault(owner, set()).add(key)
        use = kind.use
        # Signals are handled where a function is called: what follows calls none.
        kind.entries[key] = entry
        use.entries += 1
        use.bytes += entry.nbytes
        self._bytes += entry.nbytes
        self._shrink()

    def compute(self, key: Key, make: Callable[[], T], size: Callable[[T], int]) -> T:
        """The artefact of `key`; made, and kept if it fits, when it is missing.

        Threads that ask for the same missing one wait for the first. An error reaches the caller
        whose `make` raised it, and the next one tries again.
        """
        cached = self.get(key)
        if cached is not None:
            return cast(T, cached)
        with self.locked(key):
            cached = self.get(key)
            if cached is not None:
                return cast(T, cached)
            value = make()
            self.put(key, value, size(value))
            return value

    def locked(self, key: Key) -> threading.Lock:
        """The lock to hold while the artefact of `key` is made."""
        with self._lock:
            return self._computing.setdefault(key, threading.Lock())

    def pays(self, key: Key, saved: int, cost: int) -> bool:
        """Whether deriving the artefact of `key` has paid for itself, had it been resident.

        Each call adds `saved`, what this one would have saved, to the account of the key; when the
        account has reached `cost`, in the same unit, one caller is told so and it begins again.
        """
        with self._lock:
            account = self._accounts.pop(key, 0) + saved
            if account >= cost:
                return True
            self._accounts[key] = account
            if len(self._accounts) > _MOST_ACCOUNTS:
                self._accounts.popitem(last=False)
            return False

    def evict(self, *owners: Hashable) -> None:
        """Evict artefacts of owners that no new query reads: a stream of merges would otherwise
        fill the memory with old versions."""
        with self._lock:
            for owner in (*owners, *self._evicted):
                for key in list(self._by_owner.get(owner, ())):
                    self._remove(key)
            self._evicted.extend(owners)
        self._call_let_go()

    def evict_where(self, kind: str, is_gone: Callable[[Key], bool]) -> None:
        """Evict the artefacts of one kind for which `is_gone` holds."""
        with self._lock:
            for key in [key for key in self._kinds[kind].entries if is_gone(key)]:
                self._remove(key)
        self._call_let_go()

    def _call_let_go(self) -> None:
        while self._let_go:
            try:
                let_go = self._let_go.popleft()
            except IndexError:  # another thread has taken it
                return
            let_go()

    def _shrink(self) -> None:
        while self._bytes > self.max_bytes:
            largest = max(self._kinds.values(), key=lambda kind: kind.use.bytes)
            self._remove(next(iter(largest.entries)))

    def _remove(self, key: Key) -> None:
        kind = self._kinds[key.kind]
        entry, use = kind.entries.get(key), kind.use
        if entry is not None:  # else an interrupt has left its owners
            del kind.entries[key]  # no call until it is counted, see `_put`
            use.entries -= 1
            use.bytes -= entry.nbytes
            self._bytes -= entry.nbytes
            self._let_go.extend(filter(None, [entry.let_go]))
        for owner in _owners(key):
            keys = self._by_owner.get(owner, set())
            keys.discard(key)
            if not keys:
                self._by_owner.pop(owner, None)


def _owners(key: Key) -> Iterator[Hashable]:
    """The owners and the wholes that they are parts of: a share of a source, a fragment of a
    table."""
    for owner in key.owners:
        yield owner
        if isinstance(owner, tuple) and owner:
            yield owner[0]


def memory_bytes(memory: int | str) -> int:
    """A budget in bytes: a number of bytes, or a text like `"512MiB"` or `"2 GiB"`.

    Raises InvalidCallError for anything else, and for less than nothing.
    """
    match = _MEMORY.fullmatch(str(memory)) if isinstance(memory, int | str) else None
    if match is None or isinstance(memory, bool):
        raise InvalidCallError(
            f'memory must be a number of bytes, or a text like "512MiB" or "2GiB", got {memory!r}'
        )
    return int(float(match[1]) * _UNITS[match[2].lower()])


def default_budget() -> int:
    """`MEMWAL_MEMORY` (bytes, or a number with KiB, MiB, GiB), or a quarter of the memory that the
    machine or its control group gives the process, from 256 MiB to 4 GiB."""
    named = os.environ.get("MEMWAL_MEMORY")
    if named:
        try:
            return memory_bytes(named)
        except InvalidCallError as error:
            raise InvalidCallError(f"the environment's MEMWAL_MEMORY: {error}") from None
    return max(_SMALLEST_DEFAULT, min(machine_memory() // 4, _LARGEST_DEFAULT))


# One for all tables of the process: identities of sources are unique in it.
STORE = ResidentStore()
if hasattr(os, "register_at_fork"):
    # Another thread of the parent may have been in the middle of a change, with the locks.
    os.register_at_fork(after_in_child=STORE._clear)  # noqa: SLF001


class Scope:
    """The artefacts of one handle of a table: two handles may reach two tables by one name.

    Attributes:
        store: that keeps them.
    """

    def __init__(self, store: ResidentStore = STORE) -> None:
        self.store = store
        self._handle = object()

    def key(self, kind: str, detail: Hashable, *owners: Hashable) -> Key:
        """Names an artefact of the handle, and of further `owners`."""
        return Key(kind, (self._handle, *owners), detail)

    def is_own(self, key: Key) -> bool:
        """Whether an artefact is the handle's."""
        return key.owners[0] is self._handle
