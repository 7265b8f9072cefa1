"""A store that lets a test act at any operation, on top of the faults of `tests.model.faults`."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

from memwal_sql.errors import OutcomeUnknownError
from memwal_sql.storage.objects.protocol import ObjectStore
from tests.model.faults import Fault, FaultyStore, Kind

Call = Callable[[], Any]
Hook = Callable[[str, str, Call], Any]

# Every answer of a put that leaves open who won, or lies about it.
DOUBTFUL = (Kind.LOST_REPLY, Kind.TIMEOUT, Kind.LANDED_EXISTS, Kind.FALSE_EXISTS)


def passing(operation: str, path: str, call: Call) -> Any:
    """The hook that does nothing."""
    return call()


class HookedStore(FaultyStore):
    """Passes every operation through `hook(operation, path, call)`; `call()` does it."""

    def __init__(self, inner: ObjectStore, hook: Hook = passing) -> None:
        super().__init__(inner)
        self.hook = hook

    def fault_next_put(self, kind: Kind, nth: int = 1) -> None:
        """Let the `nth` put from now on go wrong."""
        self.plan.append(Fault("put_if_absent", kind, nth))

    def _run(self, operation: str, path: str, do: Call, do_half: Call | None = None) -> Any:
        run = super()._run
        return self.hook(operation, path, lambda: run(operation, path, do, do_half))


class Outage:
    """A hook: from the `nth` put on, which lands or does not, the store answers nothing, until it
    has been asked `lasts` times or somebody calls `end`. Then comes `meanwhile`."""

    def __init__(
        self,
        nth: int,
        *,
        lands: bool,
        lasts: int | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        self._nth, self._lands, self._lasts, self._meanwhile = nth, lands, lasts, meanwhile
        self._puts = self._asked = 0
        self._lock = Lock()
        self.over = False

    @property
    def begun(self) -> bool:
        """Whether there was an n-th put."""
        return self._asked > 0

    def end(self) -> None:
        """The store works again."""
        self.over = True
        self._meanwhile()

    def __call__(self, operation: str, path: str, call: Call) -> Any:
        with self._lock:
            self._puts += operation == "put_if_absent"
            out = self._puts >= self._nth and not self.over
            self._asked += out
            first, last = out and self._asked == 1, out and self._asked == self._lasts
        if not out or (first and self._lands):
            found = call()
            if not out:
                return found
        if last:
            self.end()
        raise OutcomeUnknownError(f"no answer to {operation} of {path}")


class Crash(BaseException):
    """The process is gone: no code of it catches this, and its store does nothing more."""


def crash_at(nth: int, when: str) -> Hook:
    """Crash before or after the `nth` operation (from 1) and refuse all later ones."""
    count = 0

    def hook(operation: str, path: str, call: Call) -> Any:
        nonlocal count
        count += 1
        if count > nth or (count == nth and when == "before"):
            raise Crash
        result = call()
        if count == nth:
            raise Crash
        return result

    return hook
