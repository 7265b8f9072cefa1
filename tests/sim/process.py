"""A simulated process: handle, writer and process id of its own; its requests take their turns.

Nothing of it runs in the background: flushes wait for the writer's next call, and the ages of its
MemTables for `tick`.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from random import Random
from threading import Lock, local
from typing import Any
from unittest.mock import Mock, patch

import memwal_sql as mw
from exec_nodes.base import threads, transient_threads
from exec_nodes.base.tasks import background_by
from exec_nodes.resident.store import ResidentStore
from memwal_sql import create, drop
from memwal_sql.errors import OutcomeUnknownError, StoreUnavailableError
from memwal_sql.maintain.checks import transactions as checked
from memwal_sql.maintain.gc import collector
from memwal_sql.state import open_writers
from memwal_sql.storage.generation import write
from memwal_sql.storage.objects import memory, store_time
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.records import transactions
from memwal_sql.storage.retries import Pauses
from memwal_sql.write import coordinator, table_writer
from tests.model.resident import another_store
from tests.sim.schedule import Fault, Gone, Schedule

# Lance's files and commits have the machine's time; to a collection of garbage all of them are old.
_BEGIN_SECONDS = 4e9
REFUSED = "is refused"
_thread = local()
_numbers = itertools.count(10_000)


class Process:
    """Its `writer` is opened by its first use; a new process has another id."""

    def __init__(self, uris: Iterable[str], name: str, schedule: Schedule) -> None:
        self.name = name
        self.schedule = schedule
        self._gone = False
        self._skew = 0.0
        self.off = 0.0
        self._writer: mw.TableWriter | None = None
        self.pid = next(_numbers)
        self.resume()
        self.tables = [mw.open_table(uri) for uri in uris]
        self.table = self.tables[0]

    def resume(self) -> None:
        """Be the process of this thread."""
        _thread.process = self

    def clock(self) -> float:
        """Seconds; `jump` moves it."""
        return self.schedule.seconds + self._skew

    def machine_time(self) -> float:
        """What the clock of its machine says, which may be days `off` that of the store."""
        return _BEGIN_SECONDS + self.schedule.seconds + self.off

    def sleep(self, seconds: float) -> None:
        """Let others go on; the clock says afterwards that the time is over."""
        self._skew += seconds
        self.request("sleep", lambda: None)

    def jump(self) -> None:
        """Let the clock go forth or back, and the writer look at it."""
        self._skew += self.schedule.rng.choice((-1000.0, 100.0, 1000.0))
        if self._writer is not None:
            self._writer._tick()
            self._writer._flushes.make_queued()

    def writer(self) -> mw.TableWriter:
        """The open writer."""
        if self._writer is None:
            rows = self.schedule.rng.choice((4, 1000))
            self._writer = self.table.writer(memtable_rows=rows)
        return self._writer

    def lose_writer(self) -> None:
        """Close it."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    @property
    def writes(self) -> bool:
        """Whether a writer is open."""
        return self._writer is not None

    def request(self, operation: str, call: Callable[..., Any], *args: Any) -> Any:
        """Make a request of the store when its turn comes."""
        if self._gone:
            raise Gone
        self.schedule.step(self.name, f"{operation} {args[0] if args else ''}")
        fault = self.schedule.fault(operation)
        match fault:
            case Fault.REFUSED:
                raise StoreUnavailableError(f"{operation} {REFUSED}")
            case Fault.GONE_BEFORE:
                self._gone = True
                raise Gone
            case Fault.LATE:
                self.schedule.later(partial(call, *args))
                raise OutcomeUnknownError(f"{operation} is late")
        result = call(*args)
        match fault:
            case Fault.LOST:
                raise OutcomeUnknownError(f"the answer to {operation} is lost")
            case Fault.GONE_AFTER:
                self._gone = True
                raise Gone
        return result


class _Store:
    """The store of a process; objects are deleted one by one."""

    def __init__(self, inner: Any, process: Process) -> None:
        self._inner = inner
        self._process = process

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return partial(self._process.request, name, value) if callable(value) else value

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._process.request("delete", self._inner.delete, [path])

    delete_in_bulk = delete


class _System:
    """The modules `os` and `secrets`, with the process id of the simulated process and random bytes
    of a seed."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def getpid(self) -> int:
        process: Process | None = getattr(_thread, "process", None)
        return process.pid if process else 0

    def urandom(self, count: int) -> bytes:
        return self._rng.randbytes(count)

    def randbits(self, count: int) -> int:
        return self._rng.getrandbits(count)


def _no_thread(*_: Any, **__: Any) -> Any:
    raise RuntimeError("no threads are started in a simulation")


def _clock() -> float:
    process: Process | None = getattr(_thread, "process", None)
    return process.clock() if process else 0.0


def _sleep(seconds: float) -> None:
    process: Process | None = getattr(_thread, "process", None)
    if process:
        process.sleep(seconds)


class _Time:
    """The module `time` of the store, and of what judges its times: the schedule's clock."""

    @staticmethod
    def time() -> float:
        process: Process | None = getattr(_thread, "process", None)
        return _BEGIN_SECONDS + (process.schedule.seconds if process else 0.0)

    @classmethod
    def utc_now(cls) -> datetime:
        return datetime.fromtimestamp(cls.time(), UTC)


class _MachineTime:
    """The module `time` of what must not go by it."""

    @staticmethod
    def time() -> float:
        process: Process | None = getattr(_thread, "process", None)
        return process.machine_time() if process else _BEGIN_SECONDS


def _opened(*args: Any, **options: Any) -> Any:
    process: Process | None = getattr(_thread, "process", None)
    store = open_store(*args, **options)
    return _Store(store, process) if process else store


@contextmanager
def simulated(seed: str) -> Iterator[None]:
    """Within the context what happens depends on the seed alone: no threads in the background, no
    pauses, and identifiers of the seed."""
    system = _System(Random(f"{seed} identifiers"))
    with ExitStack() as within:
        within.enter_context(Pauses.set(first=0, longest=0))
        within.enter_context(background_by(lambda call: call()))
        for module in (open_writers, table_writer, uuid, write):
            within.enter_context(patch.object(module, "os", system))
        within.enter_context(patch.object(transactions, "secrets", system))
        within.enter_context(patch.object(coordinator, "utc_now", _Time.utc_now))
        within.enter_context(patch.object(create, "open_store", _opened))
        within.enter_context(patch.object(threads, "start_call", _no_thread))
        within.enter_context(patch.object(transient_threads, "start_call", _no_thread))
        within.enter_context(patch.object(table_writer, "Ticks", lambda *_: None))
        within.enter_context(another_store())
        # What one process makes for itself no other waits for.
        within.enter_context(patch.object(ResidentStore, "locked", lambda *_: Lock()))
        for module in (memory, checked):
            within.enter_context(patch.object(module, "time", _Time))
        within.enter_context(patch.object(collector, "time", _MachineTime))
        within.enter_context(
            patch.object(store_time, "_log", Mock())
        )  # machines are off on purpose
        within.enter_context(patch.object(drop, "open_store", _opened))
        own = {"clock": _clock, "sleep": _sleep, "random": Random(f"{seed} turns").random}
        made = mw.TableWriter.__init__
        defaults = {**(made.__kwdefaults__ or {}), **own}
        within.enter_context(patch.object(made, "__kwdefaults__", defaults))
        turns = partial(table_writer.Turns, now=_Time.time)
        within.enter_context(patch.object(table_writer, "Turns", turns))
        yield
