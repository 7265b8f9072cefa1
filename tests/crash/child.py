"""The doomed process: it writes, says what was acknowledged, and kills itself where it is told."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import lance

import memwal_sql as mw
from memwal_sql import create
from tests.crash.script import writes

STORE_CHANGES = ("put", "put_if_absent", "delete", "delete_in_bulk")
LANCE_CALLS = (
    (lance, "write_dataset"),
    (lance.LanceDataset, "create_scalar_index"),
    (lance.LanceDataset, "commit"),
    (lance, "dataset"),
)


@dataclass(frozen=True)
class Death:
    """When to die: `where` is "store" or "lance" (at the `nth` call), or "time" (after
    `seconds`). `when` is "before", "after", or "during": `seconds` after the call began."""

    where: str
    nth: int = 0
    when: str = "before"
    seconds: float = 0.0


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class _Trap:
    """Counts calls and kills at the one it was told."""

    def __init__(self, death: Death) -> None:
        self._death = death
        self._lock = threading.Lock()
        self.calls = 0

    def around(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def trapped(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                self.calls += 1
                now = self.calls == self._death.nth
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


def write_until_death(
    uri: str, seed: int, count: int, options: dict[str, Any], death: Death, link: Connection
) -> None:
    """Write `count` writes; after each acknowledgement its number goes through `link`. At the end,
    if it lives to see it, minus the number of trapped calls."""
    trap = _Trap(death)
    if death.where == "store":
        opened = create.open_store
        create.open_store = lambda *a, **k: _TrappedStore(opened(*a, **k), trap)
    table = mw.open_table(uri)
    if death.where == "lance":
        for owner, name in LANCE_CALLS:
            setattr(owner, name, trap.around(getattr(owner, name)))
    if death.where == "time":
        threading.Timer(death.seconds, _die).start()
    writer = table.writer(**options)
    for write in writes(seed, count):
        if write.kind == "flush":
            writer.flush()
        else:
            (writer.upsert if write.kind == "upsert" else writer.delete)(write.rows())
        link.send(write.op)
    writer.close()
    link.send(-trap.calls)
