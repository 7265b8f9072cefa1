"""All background jobs of a table in a loop: each is done when there is enough to do for it.

Any number of these loops may run on one table, and die at any moment: the jobs see to that
themselves. Another loop is what makes up for one that died.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from threading import TIMEOUT_MAX
from typing import Protocol

import pyarrow as pa

from memwal_sql.arguments import is_number, is_whole
from memwal_sql.errors import InvalidCallError, RetryError
from memwal_sql.maintain.progress import Report, report_nothing
from planner.model import Snapshot

MERGE = "merge"
INDEX = "index"
SNAPSHOT = "snapshot"
COLLECT = "gc"
# A day instead of 15 minutes.
_MOST_DOUBLINGS = 7
JOBS = (MERGE, INDEX, SNAPSHOT, COLLECT)

_Generations = frozenset[tuple[str, int]]


class Maintained(Protocol):
    """What the loop needs of a table; see `Table`."""

    def snapshot(self, consistency: str) -> Snapshot:
        """One state of the table."""

    def merge(self, progress: Report | None = None) -> int:
        """Merge generations; how many."""

    def build_indexes(self, progress: Report | None = None) -> list[str]:
        """Bring indexes up to date; which were behind."""

    def snapshot_regions(self) -> int:
        """Record region states; the version that has them."""

    def collect_garbage(
        self,
        *,
        older_than: timedelta,
        versions_older_than: timedelta | None,
        progress: Report | None = None,
    ) -> pa.Table:
        """Delete what nobody needs; a row a thing."""


@dataclass(frozen=True, slots=True)
class Triggers:
    """When a job is due. Times are in seconds; indexes are looked at after every merge too.

    Attributes:
        merge_generations: a region has so many generations that are not merged,
        merge_seconds: or one of them has waited so long.
        index_seconds: so long since indexes were last looked at.
        snapshot_seconds: generations were flushed, and the last record is so old.
        collect_seconds: so long since the last collection.
        grace_seconds: what readers may still use that began so long ago is not collected.
        version_seconds: base versions older than this are cleaned up with it, except tagged ones:
            as long as they are there, so are the generations that they read. Infinite: never.
    """

    merge_generations: int = 4
    merge_seconds: float = 60.0
    index_seconds: float = 300.0
    snapshot_seconds: float = 60.0
    collect_seconds: float = 900.0
    grace_seconds: float = 3600.0
    version_seconds: float = math.inf

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if name == "merge_generations":
                fits, needed = is_whole(value, least=0), "a whole number, 0 or more"
            else:
                fits = is_number(value) and (0 <= value <= TIMEOUT_MAX or value == math.inf)
                needed = "a number of seconds, from 0 to 200 years or infinite"
            if not fits:
                raise InvalidCallError(f"{name}={value!r} must be {needed}")
        if math.isinf(self.grace_seconds):
            raise InvalidCallError("grace_seconds must be finite: raise collect_seconds instead")


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job.

    Attributes:
        job: one of `JOBS`.
        outcome: what it did, such as `4 generations merged`; the error's text if there is one.
        error: what kept it from its end; it is tried again in the next round.
    """

    job: str
    outcome: str
    seconds: float
    error: RetryError | None = None


def run_jobs(
    table: Maintained,
    triggers: Triggers | None = None,
    *,
    interval: float = 5.0,
    idle_interval: float = 600.0,
    rounds: int | None = None,
    progress: Report | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[JobRun]:
    """Do what is due, again and again; yields a record of every job that was run.

    Args:
        interval: seconds between two rounds.
        idle_interval: the most of these: as long as nothing is flushed and no job finds anything to
            do, each pause is twice the one before, and so are the times after which such a job is
            due again.
        rounds: how many; for ever by default. Leave the loop to stop it between two jobs.
        progress: gets the progress of each job while it runs.

    An error that another attempt can mend is part of the record, any other one is raised.
    """
    for name, seconds in (("interval", interval), ("idle_interval", idle_interval)):
        if not is_number(seconds) or not 0 <= seconds <= TIMEOUT_MAX:
            raise InvalidCallError(
                f"{name}={seconds!r} must be a number of seconds, from 0 to 200 years"
            )
    if rounds is not None and not is_whole(rounds, least=0):
        raise InvalidCallError(f"rounds={rounds!r} must be a whole number, 0 or more")
    return _rounds(
        _Loop(table, triggers or Triggers(), progress or report_nothing, clock),
        interval,
        idle_interval,
        rounds,
        sleep,
    )


def _rounds(
    loop: _Loop,
    interval: float,
    longest: float,
    rounds: int | None,
    sleep: Callable[[float], None],
) -> Iterator[JobRun]:
    done, pause = 0, interval
    while rounds is None or done < rounds:
        if done:
            sleep(pause)
        loop.is_idle = True
        yield from loop.round()
        pause = max(interval, min(2 * pause, longest)) if loop.is_idle else interval
        done += 1


def run_all_jobs(
    table: Maintained,
    triggers: Triggers | None = None,
    *,
    progress: Report | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[JobRun]:
    """Do every job once, due or not; for a scheduler that starts it now and then. Of `triggers`
    only what says how to collect is looked at."""
    loop = _Loop(table, triggers or Triggers(), progress or report_nothing, clock)
    for job in JOBS:
        yield loop.run(job)


class _Loop:
    """Remembers when what was done, and how often in vain.

    Attributes:
        is_idle: nothing was changed, found or left to be done since this was set.
    """

    def __init__(
        self, table: Maintained, triggers: Triggers, progress: Report, clock: Callable[[], float]
    ) -> None:
        self._table = table
        self._triggers = triggers
        self._progress = progress
        self._clock = clock
        self._waiting_since: dict[tuple[str, int], float] = {}
        self._recorded: _Generations = frozenset()
        self._last: dict[str, float] = {SNAPSHOT: clock()}
        self._in_vain: dict[str, int] = {}
        self.is_idle = True

    def round(self) -> Iterator[JobRun]:
        """Every job that is due, in order."""
        try:
            flushed = self._look()
        except RetryError as error:
            self.is_idle = False
            yield JobRun(MERGE, str(error), 0.0, error)
            return
        if self._merge_is_due(flushed):
            yield self.run(MERGE)
        if self._is_overdue(INDEX, self._triggers.index_seconds):
            yield self.run(INDEX)
        if flushed - self._recorded and self._is_overdue(SNAPSHOT, self._triggers.snapshot_seconds):
            yield self.run(SNAPSHOT)
        if self._is_overdue(COLLECT, self._triggers.collect_seconds):
            yield self.run(COLLECT)

    def run(self, job: str) -> JobRun:
        """Do a job now."""
        start = self._clock()
        try:
            found, outcome = self._do(job)
        except RetryError as error:
            self.is_idle = False
            return JobRun(job, str(error), self._clock() - start, error)
        self._last[job] = self._clock()
        self._in_vain[job] = 0 if found else self._in_vain.get(job, 0) + 1
        self.is_idle &= not found
        return JobRun(job, outcome, self._clock() - start)

    def _do(self, job: str) -> tuple[bool, str]:
        """Whether there was anything to do, and what was done."""
        if job == MERGE:
            merged = self._table.merge(self._progress)
            if merged:
                self._last.pop(INDEX, None)
                self._note_recorded()
            return merged > 0, f"{merged} generations merged"
        if job == INDEX:
            built = self._table.build_indexes(self._progress)
            return bool(built), f"indexes brought up to date: {', '.join(built) or 'none'}"
        if job == SNAPSHOT:
            flushed = frozenset(self._waiting_since)
            version = self._table.snapshot_regions()
            self._recorded = flushed
            return True, f"regions recorded in version {version}"
        triggers = self._triggers
        versions = triggers.version_seconds
        collected = self._table.collect_garbage(
            older_than=timedelta(seconds=triggers.grace_seconds),
            versions_older_than=None if math.isinf(versions) else timedelta(seconds=versions),
            progress=self._progress,
        )
        return collected.num_rows > 0, f"{collected.num_rows} things deleted"

    def _note_recorded(self) -> None:
        """A merge records the regions as they are afterwards."""
        self._recorded = frozenset(self._waiting_since)
        self._last[SNAPSHOT] = self._clock()

    def _look(self) -> _Generations:
        """The generations that are flushed and not merged, by region name."""
        snapshot = self._table.snapshot("manifest")
        flushed = frozenset(
            (str(region.region_id), source.generation)
            for region in snapshot.regions
            for source in region.sources
        )
        now = self._clock()
        if flushed or self._waiting_since:
            self.is_idle = False
        if flushed != self._waiting_since.keys():
            self._in_vain.clear()
        self._waiting_since = {one: self._waiting_since.get(one, now) for one in flushed}
        return flushed

    def _merge_is_due(self, flushed: _Generations) -> bool:
        counts: dict[str, int] = {}
        for region, _ in flushed:
            counts[region] = counts.get(region, 0) + 1
        if any(count >= self._triggers.merge_generations for count in counts.values()):
            return True
        oldest = min(self._waiting_since.values(), default=None)
        return oldest is not None and self._clock() - oldest >= self._triggers.merge_seconds

    def _is_overdue(self, job: str, seconds: float) -> bool:
        last = self._last.get(job)
        wait = seconds * 2 ** min(self._in_vain.get(job, 0), _MOST_DOUBLINGS)
        return last is None or self._clock() - last >= wait
