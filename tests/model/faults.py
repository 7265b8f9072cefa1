"""An object store that fails where a test says so."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any, TypeVar

from memwal_sql.errors import OutcomeUnknownError, StoreUnavailableError
from memwal_sql.storage.objects.protocol import ObjectStore

_Result = TypeVar("_Result")
_LONGEST_PAUSE_SECONDS = 30.0


class Kind(Enum):
    """What happens to an operation."""

    REFUSED = auto()  # nothing is done, and the caller is told so
    TIMEOUT = auto()  # nothing is done, and the caller does not know
    LOST_REPLY = auto()  # it is done, and the caller does not know
    FALSE_EXISTS = auto()  # put_if_absent: nothing is done, the answer is "exists"
    LANDED_EXISTS = auto()  # put_if_absent: it is done, the answer is "exists"
    TORN = auto()  # a put writes the first half of its bytes, and the caller does not know
    PAUSE = auto()  # it waits for `resume`, then is done
    PAUSE_AFTER = auto()  # it is done, and the answer waits for `resume`
    KILL_BEFORE = auto()  # the process ends by SIGKILL and nothing is done
    KILL_AFTER = auto()  # it is done and the process ends by SIGKILL


@dataclass(eq=False)
class Fault:
    """A fault at the `nth` call (from 1) of `operation` whose path contains `path`.

    `paused` is set when a pause begins; the test sets `resume` to end it.
    """

    operation: str
    kind: Kind
    nth: int = 1
    path: str = ""
    paused: threading.Event = field(default_factory=threading.Event)
    resume: threading.Event = field(default_factory=threading.Event)
    calls: int = 0
    fired: bool = False


class FaultyStore:
    """`inner` with the faults of `plan`; counts its calls by operation.

    `check` fails when a planned fault never happened, so a test can't pass by missing its fault.
    """

    def __init__(self, inner: ObjectStore, plan: Iterable[Fault] = ()) -> None:
        self.inner = inner
        self.plan = list(plan)
        self.calls: dict[str, int] = {}
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raise `AssertionError` when a planned fault has not happened."""
        missed = [fault for fault in self.plan if not fault.fired]
        if missed:
            raise AssertionError(f"these faults never happened: {missed}")

    def __getattr__(self, name: str) -> Any:
        """What the inner store has; each operation meets its faults, `stamp` those of `exists`."""
        found = getattr(self.inner, name)
        if name in ("uri", "remote", "service", "refuse_links"):
            return found
        operation = "exists" if name == "stamp" else name

        def run(path: str, *more: Any) -> Any:
            place = more[0] if name == "move" else path
            half = [data[: len(data) // 2] for data in more] if name.startswith("put") else None
            do_half = None if half is None else partial(found, path, *half)
            return self._run(operation, place, partial(found, path, *more), do_half)

        return run

    def delete(self, paths: Iterable[str]) -> None:
        """See `ObjectStore`; one call a path, as each may fail."""
        for path in paths:
            self._run("delete", path, partial(self.inner.delete, [path]))

    def delete_in_bulk(self, paths: Iterable[str]) -> None:
        """See `ObjectStore`; one call a path, as a request may do some of them and fail."""
        for path in paths:
            self._run("delete_in_bulk", path, partial(self.inner.delete_in_bulk, [path]))

    def _run(
        self,
        operation: str,
        path: str,
        do: Callable[[], _Result],
        do_half: Callable[[], Any] | None = None,
    ) -> _Result:
        fault = self._next(operation, path)
        if fault is None:
            return do()
        where = f"{operation} of {path}: {fault.kind.name}"
        match fault.kind:
            case Kind.REFUSED:
                raise StoreUnavailableError(where)
            case Kind.TIMEOUT:
                raise OutcomeUnknownError(where)
            case Kind.FALSE_EXISTS | Kind.LANDED_EXISTS:
                if operation != "put_if_absent":
                    raise AssertionError(f"{where} is for put_if_absent only")
                if fault.kind is Kind.LANDED_EXISTS:
                    do()
                return False  # type: ignore[return-value]
            case Kind.LOST_REPLY:
                do()
                raise OutcomeUnknownError(where)
            case Kind.TORN:
                if do_half is None:
                    raise AssertionError(f"{where} is for puts only")
                do_half()
                raise OutcomeUnknownError(where)
            case Kind.PAUSE:
                self._pause(fault)
                return do()
            case Kind.PAUSE_AFTER:
                result = do()
                self._pause(fault)
                return result
            case Kind.KILL_BEFORE:
                os.kill(os.getpid(), signal.SIGKILL)
            case Kind.KILL_AFTER:
                do()
                os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("the process outlived its kill")

    def _next(self, operation: str, path: str) -> Fault | None:
        with self._lock:
            self.calls[operation] = self.calls.get(operation, 0) + 1
            due = None
            for fault in self.plan:
                if fault.fired or fault.operation != operation or fault.path not in path:
                    continue
                fault.calls += 1
                if due is None and fault.calls >= fault.nth:
                    fault.fired, due = True, fault
            return due

    def _pause(self, fault: Fault) -> None:
        fault.paused.set()
        if not fault.resume.wait(_LONGEST_PAUSE_SECONDS):
            raise AssertionError(f"nobody resumed {fault.operation}")
