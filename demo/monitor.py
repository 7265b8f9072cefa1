"""The second process: it asks the same SQL question over and over while the events stream in."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from multiprocessing.connection import Connection

import datafusion

import memwal_sql as mw
from demo.events import EventBatch, Kind
from demo.progress import SPAWN, Counts, Progress

QUESTION = """
SELECT count(*) AS flights,
       count(dep_time) AS departed,
       count(arr_time) AS arrived,
       count(*) FILTER (WHERE dep_delay > 15) AS delayed,
       max(CASE WHEN dep_time IS NOT NULL THEN scheduled_at END) AS latest_departure
FROM flights
"""

PAUSE = 0.1
"""Seconds between two questions."""


@dataclass(frozen=True)
class Observation:
    """One answer of the second process. `problem` says what is wrong with it, if anything is."""

    flights: int
    departed: int
    arrived: int
    delayed: int
    latest_departure: datetime | None
    seconds: float
    durable: int
    """Events that were durable before the question was asked."""
    problem: str | None


def check(seen: Observation, before: Counts, after: Counts, last: Observation | None) -> str | None:
    """Say what is impossible about `seen`, which was asked between `before` and `after`.

    With strong consistency an answer holds every event that was durable before the question, and
    none that had not begun when the answer came. Departures and arrivals are never taken back, so
    their counts only grow from one answer to the next.
    """
    low, high = before.durable, after.begun
    bounds = {
        "flights": (
            low[Kind.SCHEDULED] - high[Kind.CANCELLED],
            high[Kind.SCHEDULED] - low[Kind.CANCELLED],
        ),
        "departed": (low[Kind.DEPARTED], high[Kind.DEPARTED]),
        "arrived": (low[Kind.ARRIVED], high[Kind.ARRIVED]),
    }
    for name, (least, most) in bounds.items():
        count = getattr(seen, name)
        if not least <= count <= most:
            return f"{count} flights in column {name!r}, but there are {least} to {most}"
    if not seen.arrived <= seen.departed <= seen.flights:
        return f"{seen.arrived} arrived, {seen.departed} departed, {seen.flights} flights"
    if last is not None:
        for name in ("departed", "arrived", "delayed"):
            if getattr(seen, name) < getattr(last, name):
                return f"{name} fell from {getattr(last, name)} to {getattr(seen, name)}"
    return None


def watch(uri: str, progress: Progress, answers: Connection) -> None:
    """Ask until the replay has finished, and once more then; send every `Observation`.

    A failure of the process itself is sent as a string.
    """
    try:
        context = datafusion.SessionContext()
        mw.register(context, "flights", mw.open_table(uri), consistency="strong")
        last: Observation | None = None
        before = progress.read()
        while True:
            last = _ask(context, progress, before, last)
            answers.send(last)
            if before.finished:
                return
            time.sleep(PAUSE)
            before = progress.read()
    except BaseException as error:
        answers.send(f"{type(error).__name__}: {error}")
        raise
    finally:
        answers.close()


def _ask(
    context: datafusion.SessionContext, progress: Progress, before: Counts, last: Observation | None
) -> Observation:
    start = time.perf_counter()
    row = context.sql(QUESTION).to_arrow_table().to_pylist()[0]
    seconds = time.perf_counter() - start
    seen = Observation(**row, seconds=seconds, durable=sum(before.durable), problem=None)
    problem = check(seen, before, progress.read(), last)
    return Observation(**row, seconds=seconds, durable=seen.durable, problem=problem)


class Monitor:
    """The second process as the first one sees it."""

    def __init__(self, uri: str, progress: Progress) -> None:
        self._answers, sender = SPAWN.Pipe(duplex=False)
        self._process = SPAWN.Process(target=watch, args=(uri, progress, sender), daemon=True)
        self._process.start()
        sender.close()
        self.observations: list[Observation] = []
        self.failure: str | None = None

    def collecting(self, batch: EventBatch) -> EventBatch:
        """The batch, once what was observed so far is taken in, without waiting."""
        while self._open and self._answers.poll():
            self._receive()
        return batch

    def wait(self) -> None:
        """Take in the rest, up to the process's last answer after the replay's end."""
        while self._open:
            self._receive()
        self._process.join()
        if self.failure is None and (self._process.exitcode or not self.observations):
            self.failure = f"the second process ended with exit code {self._process.exitcode}"

    @property
    def problems(self) -> list[str]:
        """Everything that was wrong, the process's own failure included."""
        problems = [seen.problem for seen in self.observations if seen.problem is not None]
        return problems if self.failure is None else [*problems, self.failure]

    @property
    def _open(self) -> bool:
        return not self._answers.closed

    def _receive(self) -> None:
        try:
            message = self._answers.recv()
        except EOFError:
            self._answers.close()
            return
        if isinstance(message, Observation):
            self.observations.append(message)
        else:
            self.failure = message
