"""A process that kills itself where it is told."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import memwal_sql as mw
from memwal_sql import create
from memwal_sql.storage.objects.local import LocalStore

# The last thing that a process says if it lives to see its end.
SURVIVED = "survived"
STORE_CHANGES = ("put", "put_if_absent", "delete", "delete_in_bulk")


@dataclass(frozen=True)
class Death:
    """When to die: `where` is "store", "remote" (a store that is taken for a remote one) or "lance"
    (at the `nth` call), or "time" (after `seconds`). `when` is "before", "after", or "during":
    `seconds` after the call began."""

    where: str
    nth: int = 0
    when: str = "before"
    seconds: float = 0.0


class _Trap:
    """Counts calls and kills at the one it was told."""

    def __init__(self, death: Death) -> None:
        self._death = death
        self._lock = threading.Lock()
        self._calls = 0

    def around(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def trapped(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                self._calls += 1
                now = self._calls == self._death.nth
            if now and self._death.when == "before":
                _die()
            if now and self._death.when == "during":
                threading.Timer(self._death.seconds, _die).start()
            result = operation(*args, **kwargs)
            if now:
                _die()
            return result

        return trapped


class _TrappedStore:
    def __init__(self, inner: Any, trap: _Trap) -> None:
        self._inner = inner
        for name in STORE_CHANGES:
            setattr(self, name, trap.around(getattr(inner, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def open_doomed(uri: str, death: Death, lance_calls: Sequence[tuple[Any, str]]) -> mw.Table:
    """The table, in a process that dies as it is told from now on. `lance_calls` (owner and name)
    are trapped where death is at a call of Lance."""
    trap = _Trap(death)
    if death.where == "remote":
        LocalStore.remote = True
    if death.where in ("store", "remote"):
        opened = create.open_store
        create.open_store = lambda *a, **k: _TrappedStore(opened(*a, **k), trap)
    table = mw.open_table(uri)
    if death.where == "lance":
        for owner, name in lance_calls:
            setattr(owner, name, trap.around(getattr(owner, name)))
    if death.where == "time":
        threading.Timer(death.seconds, _die).start()
    return table


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
