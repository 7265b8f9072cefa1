"""The base versions that reads of one table use, the newer one where the regions are past it
(protocol rules 14 and 22)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from memwal_sql.errors import NotFoundError, SourceGoneError, TableReplacedError
from memwal_sql.life_log import deferred_logs, life_log
from memwal_sql.read.region import StaleBaseError, gap_error
from memwal_sql.read.served_version import ServedVersion, WarmUp
from memwal_sql.state.base_table import BaseTable, BaseTracker
from memwal_sql.state.context import TableContext
from memwal_sql.storage.base.merge_token import MergeProgress
from memwal_sql.storage.records.gc_watermarks import check_watermarks, read_watermarks

_log = life_log(__name__)

ATTEMPTS = 8
# Readers move on from one version to the next, and back to the served one.
_MOST_CHECKED = 4
T = TypeVar("T")


class BaseVersions:
    """Gives the base versions of one table.

    Attributes:
        pinned: whether one version is read, with its recorded regions.
        served: the version that queries read.
    """

    def __init__(
        self, context: TableContext, tracker: BaseTracker, warm_up: WarmUp, *, pinned: bool
    ) -> None:
        self._context = context
        self._tracker = tracker
        self.pinned = pinned
        self.served = ServedVersion(context, tracker, warm_up)
        self._checked: OrderedDict[str, MergeProgress] = OrderedDict()
        self._lock = Lock()

    def over_base(self, base: BaseTable, take: Callable[[BaseTable], T]) -> T:
        """The result of `take`, called with a base version, and again with newer ones if the
        regions are past it, or files of it or of a generation are gone: they were merged and
        collected meanwhile, and are never skipped (protocol rule 14). `catch_up` raises if another
        table is there now. `one_state` does the same for several tables.

        Raises RepairError if that keeps happening, and SourceGoneError if a pinned version lacks
        files.
        """
        for _ in range(ATTEMPTS):
            try:
                with deferred_logs():
                    return take(base)
            except (StaleBaseError, NotFoundError, SourceGoneError) as error:
                gap = error
                if self.pinned:
                    break
                _log.debug(
                    "%s: a version after %d is taken, as the regions are past that: %s",
                    self._context.uri,
                    base.version,
                    type(error).__name__,
                )
                base = self.not_below_watermarks(self.catch_up())
        if self.pinned and isinstance(gap, NotFoundError):
            raise SourceGoneError(
                f"{gap}, and the state that is read needs it: it was merged and collected "
                "meanwhile; read the table again, in a new transaction if there is one"
            ) from gap
        self.check_watermarks(base)
        raise gap if self.pinned and isinstance(gap, SourceGoneError) else gap_error(gap)

    def catch_up(self) -> BaseTable:
        """The latest base version, which is served from now on."""
        return self._tracker.loaded if self.pinned else self.served.catch_up()

    def refresh(self) -> None:
        """Serve the latest base version from now on. Raises ReopenError if another table is there
        now."""
        if not self.pinned:
            self.served.refresh()

    def latest(self) -> BaseTable:
        """The latest base version; the own version of a pinned handle."""
        return self._tracker.loaded if self.pinned else self._tracker.latest()

    def over_latest(self, take: Callable[[BaseTable], T]) -> T:
        """As `over_base`, over the latest version."""
        return self.over_base(self.not_below_watermarks(self.latest()), take)

    def check_watermarks(self, base: BaseTable) -> BaseTable:
        """`base`, or a newer version in its place if what it lacks was merged and collected
        meanwhile. Raises TableReplacedError if a gap comes from a restore below the collected
        generations, and RepairError if the index is not the table's own."""
        if self.pinned:
            return base
        base.check_own_index(self._context.uri)
        store = self._context.store
        watermarks = read_watermarks(store)
        try:
            check_watermarks(store, base.details.merged_generations, watermarks)
        except TableReplacedError:
            base = self._tracker.reload()  # versions between may have been cleaned up
            check_watermarks(store, base.details.merged_generations, watermarks)
        return base

    def not_below_watermarks(self, base: BaseTable) -> BaseTable:
        """`base`, or a newer version in its place, whose merge progress is not below the collected
        generations: rows are lost there, whatever is read (protocol rule 22). This is checked once
        per version, and only if progress has not grown since the previous one.

        Raises as `check_watermarks` does.
        """
        if self.pinned or base.found.etag in self._checked:
            return base
        base.check_own_index(self._context.uri)
        with self._lock:
            before = next(reversed(self._checked.values()), None)
        if before is None or not _has_grown(before, base.details.merged_generations):
            base = self.check_watermarks(base)
        with self._lock:
            self._checked[base.etag] = base.details.merged_generations
            if len(self._checked) > _MOST_CHECKED:
                self._checked.popitem(last=False)
        return base


def _has_grown(before: MergeProgress, now: MergeProgress) -> bool:
    return all(now.get(shard, 0) >= mark for shard, mark in before.items())
