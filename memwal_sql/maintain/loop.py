"""All background jobs of a table in a loop: each is done when there is enough to do for it.

Any number of these loops may run on one table, and die at any moment: the jobs see to that
themselves. Another loop makes up for one that died.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from threading import TIMEOUT_MAX, Event
from uuid import UUID

from exec_nodes.base.threads import is_over, under_way
from exec_nodes.base.thresholds import Thresholds
from memwal_sql.arguments import is_number, is_whole
from memwal_sql.errors import InvalidCallError, MemWalError, RetryError, UnsupportedError
from memwal_sql.life_log import life_log
from memwal_sql.maintain.jobs import (
    COLLECT,
    COMPACT,
    FLUSH,
    INDEX,
    JOBS,
    MERGE,
    SNAPSHOT,
    JobRun,
    Maintained,
    Triggers,
)
from memwal_sql.maintain.progress import Report, report_nothing
from memwal_sql.maintain.unflushed import UnflushedLog
from memwal_sql.telemetry import JOB_SECONDS, WAITING_GENERATIONS

_log = life_log(__name__)

# A day instead of 15 minutes.
_MOST_DOUBLINGS = 7
# Logs are looked at so often within `flush_seconds`.
_FLUSH_CHECKS = 4

_Generations = frozenset[tuple[str, int]]
OnRun = Callable[[JobRun], object]


class Quiet(Thresholds):
    """Attributes:
    seconds: a writer that has not written to its region for so long is not in a turn.
    """

    seconds: float = 2.0


def run_jobs_forever(
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
    """Run due jobs again and again, in the caller's thread, which it does not give back before
    `stop` is set or `rounds` are over. `run_all_jobs` does each job once.

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
    sleep: Callable[[float], object] = time.sleep,
) -> list[JobRun]:
    """Do every job once, due or not, in the order of `JOBS`; for a scheduler that starts it now and
    then.

    The flush takes each region that no live writer holds: of writers that this process has closed,
    of those that take turns and have not written for two seconds, which claim it again if they live
    after all, and of silent ones. Its outcome says what was left.

    Args:
        triggers: only `flush_seconds`, by the clock of the store, and the fields for compaction and
            collection count.
        sleep: waits for some seconds, where a log may be written right now.
        on_run: called with the record of each job when it ends.
        progress: gets the progress of each job while it runs.

    Returns the records, one a job. A job that fails keeps none of the others from their turn; then
    its error is raised. Where several failed it is the gravest one: a `RetryError` comes last. A
    note for each of them says which job it was.
    """
    report = progress or report_nothing
    loop = _Loop(table, triggers or Triggers(), report, clock, single_pass=True, sleep=sleep)
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
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """`single_pass`: no other round follows, so the flush itself finds the free regions.

        Raises InvalidCallError for the place of a table.
        """
        if isinstance(table, str | os.PathLike):
            raise InvalidCallError(f"{table!r} is a place: mw.open_table opens the table there")
        self._table = table
        self._triggers = triggers
        self._progress = progress
        self._clock = clock
        self._single_pass = single_pass
        self._sleep = sleep
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
        by this process's clock, which the sleep of a machine and its date do not move."""
        self._last[FLUSH] = now = self._clock()
        if math.isinf(self._triggers.flush_seconds):
            return
        # A round has taken a snapshot just now.
        logs = self._table.unflushed_logs(with_ages=False, refresh=False)
        logs = [log for log in logs if log.is_closed or not math.isinf(log.flushed_within)]
        since = self._unflushed_since
        self._unflushed_since = {log.state: since.get(log.state, now) for log in logs}
        self.is_idle &= not logs
        for log in logs:
            age = now - self._unflushed_since[log.state]
            if log.is_closed or age >= log.flushed_within + self._triggers.flush_seconds:
                self._silent.append(log.region_id)

    def _find_free(self) -> int:
        """Look for regions that no live writer holds; returns the number of others with rows.

        A writer that takes turns and has not written for some time loses nothing by a claim: it
        may as well be closed. All others are left until they are silent, by the store's clock.
        """
        logs = self._logs()
        busy = {(log.state, log.end) for log in logs if log.takes_turns and not self._is_free(log)}
        if busy and not math.isinf(self._triggers.flush_seconds):
            self._sleep(Quiet.seconds)  # the store may not say when an entry was written
            logs = self._logs()
        free = [log for log in logs if self._is_free(log) or (log.state, log.end) in busy]
        if math.isinf(self._triggers.flush_seconds):
            free = []
        self._silent = [log.region_id for log in free]
        return len(logs) - len(free)

    def _logs(self) -> Sequence[UnflushedLog]:
        return self._table.unflushed_logs(with_ages=True, refresh=True)

    def _is_free(self, log: UnflushedLog) -> bool:
        is_quiet = log.takes_turns and log.quiet >= Quiet.seconds
        is_silent = log.age >= log.flushed_within + self._triggers.flush_seconds
        return log.is_closed or is_quiet or is_silent

    def _flush(self) -> tuple[bool, str]:
        busy, open_rows = 0, 0
        if self._single_pass:
            busy, open_rows = self._find_free(), self._table.open_rows()
        silent, self._silent = self._silent, []
        regions = self._table.flush_regions(silent) if silent else 0
        outcome = f"{regions} regions of closed or silent writers flushed"
        if busy:
            outcome += f"; {busy} regions with rows left, whose writers may be open"
        if open_rows:
            outcome += f"; {open_rows} rows left to the open writers of this process"
        return regions > 0, outcome

    def _do(self, job: str) -> tuple[bool, str]:
        """Whether there was anything to do, and what was done."""
        if job == FLUSH:
            return self._flush()
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
