"""One thread at a time: at every call of the store a seed decides who goes on, and what fails."""

from __future__ import annotations

import faulthandler
from collections.abc import Callable, Mapping
from enum import Enum, auto
from random import Random
from threading import Semaphore, Thread

_LONGEST_SECONDS = 30.0
_STEP_SECONDS = 0.01
_PUTS = frozenset({"put", "put_if_absent"})


class Gone(BaseException):
    """What every request of a process raises once it has died; nothing catches it."""


class _Stopped(BaseException):
    """Ends the other threads of a run that has failed."""


class Fault(Enum):
    """What happens to a request."""

    REFUSED = auto()  # nothing is done, and the caller is told so
    LOST = auto()  # it is done, and the caller does not know
    LATE = auto()  # it is done later, or never, and the caller does not know
    GONE_BEFORE = auto()  # the process dies before it
    GONE_AFTER = auto()  # the process dies after it


class Schedule:
    """Threads that take turns.

    Attributes:
        rng: decides everything.
        now: the number of steps so far.
        trace: the last steps, as text.
    """

    def __init__(self, seed: str) -> None:
        self.rng = Random(seed)
        self.now = 0
        self._idle_seconds = 0.0
        self.trace: list[str] = []
        self.fault_rate = self.rng.choice((0.0, 0.0, 0.01, 0.03))
        self._eagerness = self.rng.choice((0.02, 0.1, 0.3, 0.8))
        self._weights: dict[str, float] = {}
        self._turns: dict[str, Semaphore] = {}
        self._late: list[Callable[[], object]] = []
        self._over = Semaphore(0)
        self._failure: BaseException | None = None

    def run(self, calls: Mapping[str, Callable[[], None]]) -> None:
        """Make the calls, each on a thread of its own. Raises the first error of any."""
        self._turns = {name: Semaphore(0) for name in calls}
        self._draw_weights()
        threads = [Thread(target=self._play, args=item, daemon=True) for item in calls.items()]
        for thread in threads:
            thread.start()
        self._turns[self._next()].release()
        last = -1
        while not self._over.acquire(timeout=_LONGEST_SECONDS):
            if self.now == last:
                faulthandler.dump_traceback(all_threads=True)
                raise AssertionError("a thread waits for one whose turn it is not")
            last = self.now
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def tick(self) -> int:
        """The next moment."""
        self.now += 1
        return self.now

    @property
    def seconds(self) -> float:
        """The time since the begin."""
        return self.now * _STEP_SECONDS + self._idle_seconds

    def idle(self, seconds: float) -> None:
        """Let time pass in which nobody does anything; requests that are late by then are lost."""
        self._late.clear()
        self._idle_seconds += seconds

    def step(self, name: str, request: str) -> None:
        """Let another thread go on, perhaps, before a request of the thread `name`."""
        self.now += 1
        self.trace.append(f"{self.now} {name}: {request}")
        if self._late and self.rng.random() < 0.1:
            self._late.pop(self.rng.randrange(len(self._late)))()
        if self.rng.random() < 0.02:
            self._draw_weights()
        if self.rng.random() < self._eagerness and (chosen := self._next()) != name:
            own = self._turns[name]
            self._turns[chosen].release()
            own.acquire()
        if self._failure is not None:
            raise _Stopped

    def fault(self, operation: str) -> Fault | None:
        """What happens to the next request, which changes something if it is a put."""
        if self.rng.random() >= self.fault_rate:
            return None
        kinds = [Fault.REFUSED, Fault.GONE_BEFORE]
        if operation in _PUTS:
            kinds += [Fault.LOST, Fault.LOST, Fault.LATE, Fault.LATE, Fault.GONE_AFTER]
        kind = self.rng.choice(kinds)
        self.trace.append(f"{self.now} {kind.name}")
        return kind

    def later(self, request: Callable[[], object]) -> None:
        """Make a request at some step, or never."""
        self._late.append(request)

    def _play(self, name: str, call: Callable[[], None]) -> None:
        self._turns[name].acquire()
        try:
            if self._failure is None:
                call()
        except _Stopped:
            pass
        except BaseException as error:
            self._failure = self._failure or error
        del self._turns[name]
        if self._turns:
            self._turns[self._next()].release()
        else:
            self._over.release()

    def _draw_weights(self) -> None:
        """Some threads are slow for a while: what they were about to do comes late."""
        self._weights = {name: self.rng.choice((0.02, 1.0, 1.0)) for name in self._turns}

    def _next(self) -> str:
        names = list(self._turns)
        return self.rng.choices(names, [self._weights[name] for name in names])[0]
