"""Turns: when a process may take over the regions that another one writes.

Two processes that claim a region at every call stop each other. So a process that needs a region
which another one has lets it work for a turn, and then works for a turn itself. A call claims the
regions that it lacks when, by its own clock, each of them was claimed a turn ago, or nothing was
appended to it for an eighth of a turn: its writer has died, or has nothing to write. A writer that
has not appended since its claim may be a statement that reads, and gets half a turn. A call claims
all of its regions together, or two calls would go on taking each other's second region. With them
it claims what its process has lost and had written in its last turns: its next calls need that, and
would wait for another turn each.

If several processes wait, those that have seen the turn of another one pass have waited longer, and
go first; the more turns they have seen, the earlier, by chance.

This is policy: a claim is right at any time. A wrong clock makes processes wait longer or less, and
does no other harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from math import inf
from random import random
from typing import Protocol, TypeVar

from exec_nodes.base.tasks import map_in_threads
from exec_nodes.base.thresholds import Thresholds
from memwal_sql.errors import MemWalError
from memwal_sql.storage.deadlines import check_deadline, remaining
from memwal_sql.write.options import PARALLEL_REGIONS
from memwal_sql.write.result import NOT_WRITTEN

# Parts of a turn.
_QUIET = 1 / 8
_READING = 1 / 2
_IDLE = 1  # who waits has claimed a region by then
_INTERVAL = 1 / 16


class TurnSeconds(Thresholds):
    """The length of a turn, in seconds.

    Attributes:
        local: on a local disk.
        remote: on an object store.
        in_use: how many turns a region is in use after rows came for it: some turns of each of
            several processes.
    """

    local = 1.0
    remote = 4.0
    in_use = 8


@dataclass(frozen=True, slots=True)
class Tenure:
    """The state of a region that another process has.

    Attributes:
        epoch: the epoch of the last claim.
        end: the first free position of the log.
        modified: when the last entry was written, as `ObjectMeta` has it.
        has_written: whether rows follow the last claim.
        known_since: when this process has met the last claim, by its clock; None: now.
    """

    epoch: int
    end: int
    modified: float | None = None
    has_written: bool = True
    known_since: float | None = None

    @property
    def quiet(self) -> float:
        """The part of a turn after which its writer counts as quiet."""
        return _QUIET if self.has_written else _READING


class Contested(Protocol):
    """A region that is to be claimed."""

    def tenure(self) -> Tenure | None:
        """Its state; None if no other process has it."""


K = TypeVar("K", bound=Hashable)
C = TypeVar("C", bound=Contested)


def _tenure(region: Contested) -> Tenure | None:
    return region.tenure()


def _tenure_if_known(region: Contested) -> Tenure | None:
    try:
        return region.tenure()
    except MemWalError:  # for the call that needs the region
        return None


def _tenures(
    regions: Mapping[K, C], tenure: Callable[[Contested], Tenure | None]
) -> dict[Hashable, Tenure | None]:
    """The tenure of each region; several are asked at once."""
    asked = map_in_threads(tenure, regions.values(), PARALLEL_REGIONS)
    return dict(zip(regions, asked, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """How the calls of a writer wait for their turns.

    Attributes:
        remote: whether the table is on an object store.
        clock: seconds since some moment.
        now: seconds since 1970.
        random: gives numbers from 0 to 1.
    """

    remote: bool
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time
    random: Callable[[], float] = random

    @property
    def seconds(self) -> float:
        """The length of a turn."""
        return TurnSeconds.remote if self.remote else TurnSeconds.local

    @property
    def recent(self) -> float:
        """The time since which regions are in use that rows came for, by `clock`."""
        return self.clock() - self.seconds * TurnSeconds.in_use

    def begin(self) -> Turn:
        """The turn of a call, to `wait` for."""
        return Turn(self.seconds, self.random)

    def wait(
        self, turn: Turn, lacking: Callable[[], dict[K, C]], lost: Callable[[], dict[K, C]] = dict
    ) -> dict[K, C]:
        """Return the regions that a call lacks when they may be claimed. `lacking` gives those that
        it lacks now, and is called now and then; its errors end the wait. `lost` is called as often
        and gives further regions, which are claimed with them if other processes have them. A
        caller who then finds that another one was quicker waits again, with the same turn.

        Raises DeadlineExceededError, and the errors of reading the logs of what is lacking."""
        while True:
            check_deadline(NOT_WRITTEN)
            regions = lacking()
            tenures = _tenures(regions, _tenure)
            if turn.has_begun or turn.pause(self.clock(), self.now(), tenures):
                more = {key: region for key, region in lost().items() if key not in regions}
                taken = {k: t for k, t in _tenures(more, _tenure_if_known).items() if t is not None}
                tenures |= taken
                regions |= {key: region for key, region in more.items() if key in taken}
                needed = regions.keys() - more.keys() if turn.is_late else tenures.keys()
                pause = turn.pause(self.clock(), self.now(), tenures, needed)
                if pause:
                    self.sleep(min(pause, remaining()))
                    continue
            return regions


class Turn:
    """The wait of one call for the regions that it lacks."""

    def __init__(self, seconds: float, random: Callable[[], float]) -> None:
        """`random` gives numbers from 0 to 1."""
        self._seconds = seconds
        self._random = random
        self._seen: dict[Hashable, _Seen] = {}
        self._passed = 0
        self._drawn = False

    @property
    def has_begun(self) -> bool:
        """Whether a region was found that another process has."""
        return bool(self._seen)

    @property
    def is_late(self) -> bool:
        """Whether turns of others have passed. Then it does not wait for further regions, which are
        hardly ever all free where others take turns in them at different times."""
        return self._passed > 1

    def pause(
        self,
        now: float,
        time_now: float,
        tenures: Mapping[Hashable, Tenure | None],
        needed: Collection[Hashable] | None = None,
    ) -> float:
        """Seconds after which to ask again; 0: the turn has come.

        Args:
            now: by the clock of the process.
            time_now: in seconds since 1970.
            tenures: by region; None for one that no other process has.
            needed: the regions whose turn must have come; all by default.
        """
        others = {region: t for region, t in tenures.items() if t is not None}
        idle_since = time_now - self._seconds * _IDLE
        if not self._seen and all((t.modified or inf) <= idle_since for t in others.values()):
            return 0.0
        self._note(now, others)
        interval = self._seconds * _INTERVAL
        waited = self._seen.keys() if needed is None else self._seen.keys() & needed
        free = max((self._seen[region].free(self._seconds) for region in waited), default=-inf)
        if now < free:
            self._drawn = False
            return min(interval, free - now)
        if self._drawn:
            return 0.0
        self._drawn = True
        return interval * (self._random() / self._passed if self._passed else 1 + self._random())

    def _note(self, now: float, tenures: Mapping[Hashable, Tenure]) -> None:
        """Note which regions were claimed, and to which was appended."""
        before = self._seen
        self._seen = {
            region: before[region].later(now, tenure)
            if region in before
            else _Seen(tenure, _claimed(now, tenure), now)
            for region, tenure in tenures.items()
        }
        self._passed += any(
            region in before and before[region].tenure.epoch != tenure.epoch
            for region, tenure in tenures.items()
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    """The last tenure that was seen of a region, and when it was seen to be claimed and appended
    to."""

    tenure: Tenure
    claimed: float
    appended: float

    def free(self, seconds: float) -> float:
        """The time from which it may be claimed, with turns of so many seconds."""
        return min(self.claimed + seconds, self.appended + seconds * self.tenure.quiet)

    def later(self, now: float, tenure: Tenure) -> _Seen:
        """The same with a newer tenure."""
        return _Seen(
            tenure,
            self.claimed if tenure.epoch == self.tenure.epoch else _claimed(now, tenure),
            now if tenure.end != self.tenure.end else self.appended,
        )


def _claimed(now: float, tenure: Tenure) -> float:
    return now if tenure.known_since is None else tenure.known_since
