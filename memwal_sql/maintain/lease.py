"""The maintenance lease: one job at a time rewrites index details or marks progress (rule 19).

It is a log of numbered records in `_memwal_sql/maintenance/`, each created once. A job takes the
lease with a record, proves that it still has it with another one before every further commit, and
gives it back with a last one. Everybody lists the records, so the garbage collection deletes old
ones, and before that a holder that finds many on a local disk. Who finds it held waits; when its
holder has died or has been silent for `Patience.seconds`, by the waiter's own clock, it takes over,
and the old holder finds out with its next record.

The lease saves work, and keeps rewritten details right in all but the rarest of races. What it
can't rule out, as a process may sleep between its check and its commit, Lance's own refusal of
stale marks and `memwal_sql.maintain.details` put right.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from exec_nodes.base.thresholds import Thresholds
from memwal_sql.errors import MaintenanceLostError, MemWalError, NotFoundError
from memwal_sql.life_log import life_log
from memwal_sql.storage.deadlines import unbounded
from memwal_sql.storage.decoding import decoding, whole_number
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.records.table import Record, Records

_log = life_log(__name__)

MAINTENANCE = "maintenance"
PUBLISHING = "publishing"
_KEPT = 8
_MOST_RECORDS = 32
_MOST_PROCESSES = 2**31 - 1
_MOVE_AWAY = "stop all maintenance jobs, then move the folder of the record away"
_FIRST_PAUSE_SECONDS = 0.005
_LONGEST_PAUSE_SECONDS = 0.5

# Holders of this process that live: another one with its process id has died without a word.
_own: set[str] = set()


class Patience(Thresholds):
    """How long a holder may be silent."""

    seconds = 30.0


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A commit that a holder may have made, or may still make after others took over: details that
    it had read at `read_version`, in an index entry with `index_uuid`."""

    read_version: int
    index_uuid: UUID


class Lease:
    """The right to rewrite index details, until somebody else takes it."""

    def __init__(self, records: Records, holder: str, job: str) -> None:
        self._records = records
        self._content = {
            "holder": holder,
            "job": job,
            "host": socket.gethostname(),
            "process": os.getpid(),
        }
        self._version = 0
        self._unfinished: tuple[Unfinished, ...] = ()

    @property
    def unfinished(self) -> tuple[Unfinished, ...]:
        """Rewrites of details that nobody has checked yet, see `rewrites`; the oldest first."""
        return self._unfinished

    def take(self, after: Record | None) -> bool:
        """Take the lease with the record after `after`; whether nobody was faster."""
        version = 1 if after is None else after.version + 1
        self._unfinished = () if after is None else _notes(self._records, after)
        # A number that is free because it had been deleted is not won: others are far ahead.
        if self._records.put(version, self._record(taken=True)) is not None:
            return False
        self._version = version
        return True

    def renew(self) -> None:
        """Prove that the lease is still held. Raises MaintenanceLostError when it is not."""
        self._put()

    def rewrites(self, *unfinished: Unfinished) -> None:
        """Prove the same, and note a commit that is about to be made, or may still be.

        Should this process die on the way, the next holder finds the notes and looks whether
        progress was lost.
        """
        self._unfinished = unfinished
        self._put()

    def forget_notes(self) -> None:
        """Drop the notes, as none of these commits can come any more: the next record says so.
        Should this process die before that, the next holder looks once more."""
        self._unfinished = ()

    def give_back(self) -> None:
        """Let others take the lease at once; harmless when it was lost."""
        with suppress(MemWalError), unbounded():
            self._records.put(self._version + 1, self._record(taken=False))

    def _record(self, *, taken: bool) -> dict[str, Any]:
        notes = [
            {"read_version": rewrite.read_version, "index_uuid": str(rewrite.index_uuid)}
            for rewrite in self._unfinished
        ]
        return {**self._content, "held": taken, "unfinished": notes}

    def _put(self) -> None:
        other = self._records.put(self._version + 1, self._record(taken=True))
        if other is not None:
            raise MaintenanceLostError(
                f"the maintenance job {self._content['job']} was too slow, and "
                f"{other.content.get('job', 'another one')} took over: run it again"
            )
        self._version += 1


@contextmanager
def maintenance_lease(
    store: ObjectStore,
    job: str,
    *,
    name: str = MAINTENANCE,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Lease]:
    """Hold the lease while the block runs; waits for whoever holds it. `job` names it to others.
    Leases of another `name` have nothing to do with this one. Not reentrant.
    """
    lease = Lease(Records(store, name), holder := uuid4().hex, job)
    _own.add(holder)
    try:
        records = _wait_and_take(lease, Records(store, name), sleep, clock)
        try:
            if records > _MOST_RECORDS and not store.remote:
                delete_old_records(store, name)
            yield lease
        finally:
            lease.give_back()
    finally:
        _own.discard(holder)


def delete_old_records(store: ObjectStore, name: str) -> None:
    """Delete old records of a lease, each by a request. The last ones stay: a claimant
    may just have read one."""
    records = Records(store, name)
    records.delete(records.versions()[:-_KEPT])


def _notes(records: Records, record: Record) -> tuple[Unfinished, ...]:
    with decoding(records.path(record.version), "a record of a lease", _MOVE_AWAY):
        return tuple(
            Unfinished(whole_number(note["read_version"], 1), UUID(note["index_uuid"]))
            for note in record.content["unfinished"]
        )


def _wait_and_take(
    lease: Lease,
    records: Records,
    sleep: Callable[[float], None],
    clock: Callable[[], float],
) -> int:
    """How many records there were when it was taken."""
    seen, since, pause = -1, clock(), _FIRST_PAUSE_SECONDS
    waited = False
    while True:
        versions, latest = _latest(records)
        version = 0 if latest is None else latest.version
        if version != seen:
            seen, since, pause = version, clock(), _FIRST_PAUSE_SECONDS
        taken = latest is not None and bool(latest.content.get("held"))
        dead = taken and latest is not None and _is_dead(latest)
        if not taken or dead or clock() - since > Patience.seconds:
            if lease.take(latest):
                if taken:
                    why = "died" if dead else "is silent"
                    _log.debug("lease %s: taken over, as its holder %s", records.name, why)
                return len(versions)
            continue
        if not waited:
            waited = True
            _log.debug("lease %s: held by another job, waiting", records.name)
        sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _latest(records: Records) -> tuple[Sequence[int], Record | None]:
    """The versions that are there, ascending, and the newest record."""
    while True:
        versions = records.versions()
        with suppress(NotFoundError):  # deleted between listing and reading: there are newer ones
            return versions, records.read(versions[-1]) if versions else None


def _is_dead(record: Record) -> bool:
    """Whether the holder is known to have died: only told of processes of this machine."""
    if record.content.get("host") != socket.gethostname():
        return False
    try:
        # Numbers of 0 and below are process groups, and no kernel goes beyond 32 bits.
        process = whole_number(record.content.get("process"), 1, _MOST_PROCESSES)
        if process == os.getpid():
            return record.content.get("holder") not in _own
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, TypeError):  # nobody knows: wait, as for those of other machines
        return False
    return False
