"""A process that can die: a table handle whose store stops answering, whose writers are forgotten.

Nothing of a killed process reaches the table any more, and this process's readers no longer see
its MemTables: the same that `kill -9` leaves behind, without the cost of a process. `forks` starts
real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext
from threading import Lock
from typing import Any
from unittest.mock import patch

from exec_nodes.resident.store import STORE
from memwal_sql.read import region
from memwal_sql.state import open_writers as live
from memwal_sql.storage.objects.open import canonical_uri
from tests.model.opened import opened_over

_CHANGES = frozenset({"put", "put_if_absent", "delete", "delete_in_bulk"})


class ProcessKilledError(OSError):
    """What a store operation of a dead process raises: its reply never comes."""


class Switch:
    """Turns a process off, at once or at its n-th change of the store."""

    def __init__(self) -> None:
        self._dead = False
        self._countdown: int | None = None
        self._before = True
        self._lock = Lock()

    def kill(self) -> None:
        self._dead = True

    def kill_at(self, change: int, *, before: bool) -> None:
        """Die at the `change`-th (from 1) change from now: before it, or after it has landed."""
        with self._lock:
            self._countdown, self._before = change, before

    def run(self, name: str, operation: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Do one operation as long as the process lives."""
        dies = False
        with self._lock:
            if self._dead:
                raise ProcessKilledError(f"{name}: the process is dead")
            if name in _CHANGES and self._countdown is not None:
                self._countdown -= 1
                dies = self._countdown == 0
            if dies and self._before:
                self._dead = True
                raise ProcessKilledError(f"{name}: the process died before it")
        result = operation(*args, **kwargs)
        if dies:
            self._dead = True
            raise ProcessKilledError(f"{name}: the process died after it")
        return result


class _KillableStore:
    def __init__(self, inner: Any, switch: Switch) -> None:
        self._inner = inner
        self._switch = switch

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value
        return lambda *args, **kwargs: self._switch.run(name, value, args, kwargs)


class Process:
    """One simulated process: a table handle of its own, and writers that die with it."""

    def __init__(self, uri: str, **options: Any) -> None:
        self.switch = Switch()
        self.table = opened_over(uri, lambda store: _KillableStore(store, self.switch), **options)
        self._uri = uri

    def kill(self) -> None:
        """`kill -9`: nothing buffered is flushed, nothing is closed."""
        self.switch.kill()
        forget_writers(self._uri)


def forget_writers(uri: str) -> None:
    """Make this process blind for the MemTables of its writers on a table."""
    own = canonical_uri(uri)
    with live._lock:
        for key in [key for key in live._regions if key[1][0] == own]:
            del live._regions[key]
        for number in [number for number, one in live._tables.items() if one.identity[0] == own]:
            del live._tables[number]


@contextmanager
def as_another_process() -> Iterator[None]:
    """Read as a process does that has no writers: unflushed rows come from the WAL, and nothing is
    resident."""
    budget = STORE.max_bytes
    STORE.max_bytes = 0
    STORE.max_bytes = budget
    with patch.object(region, "live_writer", lambda table, region_id: None):
        yield


def forks() -> ForkServerContext:
    """The context of `multiprocessing` whose processes start in a few milliseconds: each is forked
    from one that has imported the packages, and has nothing else of the process that starts it."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["pytest", "memwal_sql"])
    return context
