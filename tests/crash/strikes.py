"""What ends a call from outside at one of its requests: Ctrl-C, or the caller's deadline."""

from __future__ import annotations

import _thread
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from threading import Lock
from typing import Any
from unittest.mock import patch

import memwal_sql as mw
from memwal_sql import create
from memwal_sql.storage import deadlines
from memwal_sql.storage.objects.protocol import ObjectStore
from tests.write.hooked_store import Call, HookedStore

_LONG = 1e6  # seconds


class How(StrEnum):
    """What happens at the request."""

    INTERRUPT_BEFORE = "Ctrl-C before it"
    INTERRUPT_AFTER = "Ctrl-C after it"
    DEADLINE = "the deadline passes before it"


class Strike:
    """Counts the requests of the stores that it is around, and strikes at the `nth` while `armed`.

    Attributes:
        struck: whether there was such a request.
    """

    def __init__(self, nth: int, how: How) -> None:
        self.struck = False
        self._nth = nth
        self._how = how
        self._count: int | None = None
        self._lock = Lock()

    def around(self, store: ObjectStore) -> HookedStore:
        """The store whose requests count."""
        return HookedStore(store, self._hook)

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Strike within the context."""
        self._count = 0
        try:
            if self._how is How.DEADLINE:
                with mw.deadline(_LONG), patch.object(deadlines, "time", self):
                    yield
            else:
                yield
        finally:
            self._count = None

    def monotonic(self) -> float:
        """The time as deadlines see it."""
        return time.monotonic() + (10 * _LONG if self.struck else 0.0)

    def _hook(self, operation: str, path: str, call: Call) -> Any:
        with self._lock:
            now = False
            if self._count is not None:
                self._count += 1
                now = self._count == self._nth
                self.struck |= now
        if now and self._how is How.INTERRUPT_BEFORE:
            _thread.interrupt_main()
        deadlines.check_deadline(path)
        found = call()
        if now and self._how is How.INTERRUPT_AFTER:
            _thread.interrupt_main()
        return found


@contextmanager
def stores_by(wrap: Callable[[ObjectStore], Any]) -> Iterator[None]:
    """Within the context tables are made and opened over what `wrap` makes of their stores."""
    opened = create.open_store
    with patch.object(create, "open_store", lambda *a, **k: wrap(opened(*a, **k))):
        yield
