"""All background jobs of a table in a loop: each is done when there is enough to do for it.

Any number of these loops may run on one table, and die at any moment: the jobs see to that
themselves. Another loop makes up for one that died.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from threading import TIMEOUT_MAX, Event
from typing import Protocol
from uuid import UUID

import pyarrow as pa

from exec_nodes.base.threads import is_over, under_way
from memwal_sql.arguments import is_number, is_whole
from memwal_sql.errors import InvalidCallError, MemWalError, RetryError, UnsupportedError
from memwal_sql.life_log import life_log
from memwal_sql.maintain.progress import Report, report_nothing
from memwal_sql.maintain.unflushed import UnflushedLog
from memwal_sql.telemetry import JOB_SECONDS, WAITING_GENERATIONS
from planner.model import Snapshot

_log = life_log(__name__)

FLUSH = "flush"
MERGE = "merge"
INDEX = "index"
COMPACT = "compact"
SNAPSHOT = "snapshot"
COLLECT = "gc"
# A day instead of 15 minutes.
_MOST_DOUBLINGS = 7
# Logs are looked at so often within `flush_seconds`.
_FLUSH_CHECKS = 4
JOBS = (FLUSH, MERGE, INDEX, COMPACT, SNAPSHOT, COLLECT)

_Generations = frozenset[tuple[str, int]]


class Maintained(Protocol):
    """The methods of a table that the loop calls; see `Table`."""

    @property
    def uri(self) -> str:
        """Where the table is."""

    def snapshot(self, consistency: str) -> Snapshot:
        """One state of the table."""

    def unflushed_logs(self, *, with_ages: bool, refresh: bool) -> Sequence[UnflushedLog]:
        """The logs with rows that a writer was to flush; their ages only if asked for. Without
        `refresh` the regions are those of the last snapshot."""

    def flush_regions(self, regions: Collection[UUID]) -> int:
        """Claim regions and flush their logs; how many."""

    def merge(self, progress: Report | None = None) -> int:
        """Merge generations; how many."""

    def build_indexes(self, progress: Report | None = None) -> list[str]:
        """Bring indexes up to date; which were behind."""

    def compact(
        self,
        progress: Report | None = None,
        *,
        fragments: int | None,
        deleted: float,
        dry_run: bool = False,
    ) -> int:
        """Rewrite fragments of the base; returns how many."""

    def snapshot_regions(self) -> int:
        """Record region states; the version that has them."""

    def collect_garbage(
        self,
        *,
        older_than: timedelta,
        versions_older_than: timedelta | None,
        progress: Report | None = None,
    ) -> pa.Table:
        """Delete unneeded files; a row for each."""


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
        version_seconds: base versions older than this, a week, are cleaned up with it, except what
            tags, branches and checkpoints hold: as long as they are there, so are the generations
            that they read, and every copy that a compaction has written. Infinite: never.
        flush_seconds: a region is claimed and flushed if its writer is silent: it should have
            flushed rows of its log, by its own `memtable_age_s`, this long ago. A writer that was
            only stopped for that long claims it again, or gets FencedError if it buffers rows.
            Infinite: no region is claimed.
        compact_fragments: this many adjacent fragments of the base together have twice the size of
            the largest one: see `Table.compact`.
        compact_deleted: or this share of all rows in its files, above 0 and up to 1, was deleted.
    """

    merge_generations: int = 4
    merge_seconds: float = 60.0
    index_seconds: float = 300.0
    snapshot_seconds: float = 60.0
    collect_seconds: float = 900.0
    grace_seconds: float = 3600.0
    version_seconds: float = 7 * 86400.0
    flush_seconds: float = 300.0
    compact_fragments: int = 4
    compact_deleted: float = 0.2

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if name == "merge_generations":
                fits, needed = is_whole(value, least=0), "a whole number, 0 or more"
            elif name == "compact_fragments":
                fits, needed = is_whole(value, least=2), "a whole number, 2 or more"
            elif name == "compact_deleted":
                fits, needed = is_number(value) and 0 < value <= 1, "a number above 0, up to 1"
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
        outcome: its result, such as `4 generations merged`, or the error's text. error: the error
            that ended it.
    """

    job: str
    outcome: str
    seconds: float
    error: MemWalError | None = None

    def __repr__(self) -> str:
        return f"JobRun({self.job!r}, {self.outcome!r}, {self.seconds:.3f} s)"


OnRun = Callable[[JobRun], object]


def run_jobs(
    table: Maintained,
    triggers: Triggers | None = None,
    *,
    interval: float = 5.0,
    idle_interval: float = 600.0,
    rounds: int | None = None,
    stop: Event | None = None,
    on_run: OnRun | None = None,
    progress: Report | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] | None = None,
) -> None:
    """Run due jobs again and again, in the caller's thread; returns after `rounds`, or when
    `stop` is set.

    Args:
        interval: seconds between two rounds.
        idle_interval: the most of these: as long as nothing is flushed and no job finds anything to
            do, each pause is twice the one before, and so are the times after which such a job is
            due again.
        rounds: how many; for ever by default.
        stop: an event that another thread sets to end the loop, between two jobs or in a pause.
        on_run: called with the record of every job that was run, when it ends. What it raises ends
            the loop.
        progress: gets the progress of each job while it runs.

    A job that failed with a `RetryError` runs again in the next round, and the other jobs go on. So
    they do where `flush` failed with any error, as where the log of one region is damaged; it runs
    again when a log is silent again. An error of the last round is raised when the loop ends, with
    a note for each job that failed in it. Any other error ends the loop at once.
    """
    for name, seconds in (("interval", interval), ("idle_interval", idle_interval)):
        if not is_number(seconds) or not 0 <= seconds <= TIMEOUT_MAX:
            raise InvalidCallError(
                f"{name}={seconds!r} must be a number of seconds, from 0 to 200 years"
            )
    if rounds is not None and not is_whole(rounds, least=0):
        raise InvalidCallError(f"rounds={rounds!r} must be a whole number, 0 or more")
    stop = stop or Event()
    loop = _Loop(table, triggers or Triggers(), progress or report_nothing, clock)
    runs: list[JobRun] = []
    done, pause = 0, interval
    while not stop.is_set() and (rounds is None or done < rounds):
        if done:
            (sleep or stop.wait)(pause)
        loop.is_idle = True
        runs = []
        with under_way(f"jobs of {table.uri}"):  # the loop may be in a daemon thread
            for run in loop.round(lambda: stop.is_set() or is_over()):
                runs.append(run)
                if on_run is not None:
                    on_run(run)
        pause = max(interval, min(2 * pause, idle_interval)) if loop.is_idle else interval
        done += 1
    _raise_failed(runs)


def run_all_jobs(
    table: Maintained,
    triggers: Triggers | None = None,
    *,
    on_run: OnRun | None = None,
    progress: Report | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> list[JobRun]:
    """Do every job once, due or not, in the order of `JOBS`; for a scheduler that starts it now and
    then.

    Args:
        triggers: only `flush_seconds`, by the clock of the store, and the fields for compaction and
            collection count.
        on_run: called with the record of each job when it ends.
        progress: gets the progress of each job while it runs.

    Returns the records, one a job. A job that fails keeps none of the others from their turn; then
    its error is raised. Where several failed it is the gravest one: a `RetryError` comes last. A
    note for each of them says which job it was.
    """
    loop = _Loop(table, triggers or Triggers(), progress or report_nothing, clock, single_pass=True)
    runs: list[JobRun] = []
    for job in JOBS:
        run = loop.run(job, MemWalError)
        runs.append(run)
        if on_run is not None:
            on_run(run)
    _raise_failed(runs)
    return runs


def _raise_failed(runs: list[JobRun]) -> None:
    """Raise the gravest error of these runs, if any, with a note for each failed job."""
    errors = [run.error for run in runs if run.error is not None]
    if not errors:
        return
    gravest = min(errors, key=lambda error: isinstance(error, RetryError))
    for run in runs:
        if run.error is not None:
            gravest.add_note(f"the job {run.job!r} was not done: {run.outcome}")
    raise gravest


class _Loop:
    """Remembers when each job ran, and how often it found nothing to do.

    Attributes:
        is_idle: nothing was changed, found or left to be done since this was set.
    """

    def __init__(
        self,
        table: Maintained,
        triggers: Triggers,
        progress: Report,
        clock: Callable[[], float],
        *,
        single_pass: bool = False,
    ) -> None:
        """`single_pass`: logs are read once, and not twice, to find silent writers."""
        self._table = table
        self._triggers = triggers
        self._progress = progress
        self._clock = clock
        self._single_pass = single_pass
        self._unflushed_since: dict[tuple[UUID, int, int], float] = {}
        self._silent: list[UUID] = []
        self._waiting_since: dict[tuple[str, int], float] = {}
        self._recorded: _Generations = frozenset()
        self._last: dict[str, float] = {SNAPSHOT: clock()}
        self._in_vain: dict[str, int] = {}
        self.is_idle = True

    def round(self, stopped: Callable[[], bool]) -> Iterator[JobRun]:
        """Every job that is due, in order, until it is stopped."""
        if stopped():
            return
        try:
            flushed = self._survey()
            if self._is_overdue(FLUSH, self._triggers.flush_seconds / _FLUSH_CHECKS):
                self._find_silent()
        except RetryError as error:
            yield self._failed(MERGE, error, self._clock())
            return
        for job in JOBS:
            if not stopped() and self._is_due(job, flushed):
                # The damaged log of one region must not keep the others from being merged.
                yield self.run(job, MemWalError if job == FLUSH else RetryError)

    def run(self, job: str, kept: type[MemWalError] = RetryError) -> JobRun:
        """Do a job now; an error of the kind `kept` is part of the record."""
        start = self._clock()
        try:
            did_work, outcome = self._do(job)
        except kept as error:
            return self._failed(job, error, start)
        self._last[job] = self._clock()
        self._in_vain[job] = 0 if did_work else self._in_vain.get(job, 0) + 1
        self.is_idle &= not did_work
        return self._recorded_run(JobRun(job, outcome, self._clock() - start))

    def _failed(self, job: str, error: MemWalError, start: float) -> JobRun:
        self.is_idle = False
        _log.warning("%s: the job %s failed: %s", self._table.uri, job, type(error).__name__)
        return self._recorded_run(JobRun(job, str(error), self._clock() - start, error))

    def _recorded_run(self, run: JobRun) -> JobRun:
        error = "" if run.error is None else type(run.error).__name__
        JOB_SECONDS(run.seconds, {"table": self._table.uri, "job": run.job, "error": error})
        return run

    def _find_silent(self) -> None:
        """Look for regions whose writers are silent: that a log stays as it is shows in two looks,
        by this process's clock, which the sleep of a machine and its date do not move; or at once
        by the store's."""
        self._last[FLUSH] = now = self._clock()
        if math.isinf(self._triggers.flush_seconds):
            return
        # A round has taken a snapshot just now.
        logs = self._table.unflushed_logs(with_ages=self._single_pass, refresh=self._single_pass)
        since = self._unflushed_since
        self._unflushed_since = {log.state: since.get(log.state, now) for log in logs}
        self.is_idle &= not logs
        for log in logs:
            age = log.age if self._single_pass else now - self._unflushed_since[log.state]
            if age >= log.flushed_within + self._triggers.flush_seconds:
                self._silent.append(log.region_id)

    def _do(self, job: str) -> tuple[bool, str]:
        """Whether there was anything to do, and what was done."""
        if job == FLUSH:
            if self._single_pass:
                self._find_silent()
            silent, self._silent = self._silent, []
            regions = self._table.flush_regions(silent) if silent else 0
            return regions > 0, f"{regions} regions of silent writers flushed"
        if job == MERGE:
            merged = self._table.merge(self._progress)
            if merged:
                self._last.pop(INDEX, None)
                self._note_recorded()
            return merged > 0, f"{merged} generations merged"
        if job == INDEX:
            built = self._table.build_indexes(self._progress)
            return bool(built), f"indexes brought up to date: {', '.join(built) or 'none'}"
        if job == COMPACT:
            compacted = self._compact(dry_run=False)
            return compacted > 0, f"{compacted} fragments compacted"
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

    def _compact(self, *, dry_run: bool) -> int:
        return self._table.compact(
            self._progress,
            fragments=self._triggers.compact_fragments,
            deleted=self._triggers.compact_deleted,
            dry_run=dry_run,
        )

    def _compaction_is_due(self) -> bool:
        with suppress(RetryError, UnsupportedError):  # the next round looks again
            return self._compact(dry_run=True) > 0
        return False

    def _note_recorded(self) -> None:
        """A merge records the regions as they are afterwards."""
        self._recorded = frozenset(self._waiting_since)
        self._last[SNAPSHOT] = self._clock()

    def _survey(self) -> _Generations:
        """The generations that are flushed and not merged, by region name."""
        snapshot = self._table.snapshot("manifest")
        flushed = frozenset(
            (str(region.region_id), source.generation)
            for region in snapshot.regions
            for source in region.sources
        )
        WAITING_GENERATIONS(len(flushed), {"table": self._table.uri})
        now = self._clock()
        if flushed or self._waiting_since:
            self.is_idle = False
        if flushed != self._waiting_since.keys():
            self._in_vain.clear()
        self._waiting_since = {
            generation: self._waiting_since.get(generation, now) for generation in flushed
        }
        return flushed

    def _is_due(self, job: str, flushed: _Generations) -> bool:
        triggers = self._triggers
        if job == FLUSH:
            return bool(self._silent)
        if job == MERGE:
            return self._merge_is_due(flushed)
        if job == INDEX:
            return self._is_overdue(INDEX, triggers.index_seconds)
        if job == COMPACT:
            return self._compaction_is_due()
        if job == SNAPSHOT:
            is_new = bool(flushed - self._recorded)
            return is_new and self._is_overdue(SNAPSHOT, triggers.snapshot_seconds)
        return self._is_overdue(COLLECT, triggers.collect_seconds)

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
