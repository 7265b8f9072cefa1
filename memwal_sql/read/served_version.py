"""The base version that queries read: the latest, once they need not wait for its parts.

The *latest* version is the one in the store, the *loaded* one the latest that the handle has read,
and the *served* one is the version that queries read. A version made by merges and index commits
shows the rows of the previous one together with the merged generations, whose files stay for some
time. So while resident artefacts are extended to a new version in the background (`warm_up`),
queries go on reading the previous one: no query pays for reading, matching and looking up the
merged rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Lock

from exec_nodes.base.tasks import in_background
from exec_nodes.base.thresholds import Thresholds
from exec_nodes.resident.store import STORE
from memwal_sql.errors import MemWalError
from memwal_sql.state.base_table import BaseTable, BaseTracker
from memwal_sql.state.context import TableContext
from memwal_sql.storage.base.memwal_index import FoundDetails

# A version that was replaced this long ago is not read any more, ready or not.
_MOST_SECONDS = 10.0
# Artefacts of an older version are evicted this long after queries begin to read the next one.
_LEAVE_SECONDS = 1.0

WarmUp = Callable[[BaseTable], None]


class Served(Thresholds):
    """The first query over a version of a table with fewer than `least_rows` is fast anyway."""

    least_rows = 100_000


@dataclass(frozen=True)
class _Served:
    """The version that queries read, the latest one known to show the same rows, and since when
    there is such a newer one."""

    base: BaseTable
    version: int
    details: FoundDetails
    since: float | None = None


class ServedVersion:
    """Follows the latest version of one table. Safe to use from several threads."""

    def __init__(
        self,
        context: TableContext,
        tracker: BaseTracker,
        warm_up: WarmUp,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`warm_up` is called in the background with a newer version before that is served."""
        self._context = context
        self._tracker = tracker
        self._warm_up = warm_up
        self._clock = clock
        self._served = _as_latest(tracker.loaded)
        self._following = False
        self._previous: tuple[BaseTable, float] | None = None
        self._lock = Lock()

    @property
    def base(self) -> BaseTable:
        """The served version, without a request."""
        return self._served.base

    def checked(self) -> BaseTable:
        """The served version, once a check says that it shows the rows of the latest one."""
        previous = self._previous
        if previous is not None and self._clock() - previous[1] > _LEAVE_SECONDS:
            self._let_go()
        served = self._served
        if self._tracker.is_replaced(served.version):
            same = self._latest_with_same_rows(served)
            if same is None:
                return self.catch_up()
            served = same
        if served.since is None:
            return served.base
        if self._clock() - served.since > _MOST_SECONDS:
            return self.catch_up()
        if not self._tracker.is_there(served.base.version):  # cleaned up, with its files
            return self.catch_up()
        with self._lock:
            if self._served.base is not served.base:
                return self._served.base
            self._served = served
            begin = not self._following
            self._following = True
        if begin and not in_background(partial(self._follow, served.base)):
            self._following = False
            return self.catch_up()
        return served.base

    def catch_up(self) -> BaseTable:
        """Serve the latest version from now on: an older one can't be read any more."""
        return self._serve_now(self._tracker.reload())

    def refresh(self) -> None:
        """Serve the latest version from now on, with as many requests as a writer makes for it.
        Raises ReopenError if another table is there now."""
        self._serve_now(self._tracker.latest_verified())

    def _serve_now(self, latest: BaseTable) -> BaseTable:
        self._serve(latest)
        self._let_go()
        return latest

    def _latest_with_same_rows(self, served: _Served) -> _Served | None:
        """None if the latest version shows other rows, or queries would not notice that it is
        new."""
        base, version, details = served.base, served.version, served.details
        if base.source.rows < Served.least_rows:
            return None
        try:
            self._context.check_reads()
            newest = self._tracker.newest_of(version, details, FoundDetails.has_same_rows_as)
        except MemWalError:
            return None
        if newest is None or newest[0] == version:
            return None
        since = self._clock() if served.since is None else served.since
        return _Served(base, *newest, since)

    def _follow(self, before: BaseTable) -> None:
        try:
            latest = self._tracker.reload()
            with suppress(Exception):  # a query will meet the error
                self._warm_up(latest)
            self._serve(latest, before)
            if self._served.base is not latest:  # a query could not wait for it
                STORE.evict(*(latest.owners - self._served.base.owners))
        finally:
            self._following = False

    def _serve(self, base: BaseTable, instead_of: BaseTable | None = None) -> None:
        """Let queries read `base`; given `instead_of`, only if they read that one."""
        with self._lock:
            before = self._served.base
            if before is base or not (instead_of is None or instead_of is before):
                return
            self._served = _as_latest(base)
        self._let_go()
        self._previous = before, self._clock()

    def _let_go(self) -> None:
        """Keep nothing in memory of the version that was served before."""
        previous, self._previous = self._previous, None
        if previous is not None:
            STORE.evict(*(previous[0].owners - self._served.base.owners))


def _as_latest(base: BaseTable) -> _Served:
    return _Served(base, base.version, base.found)
