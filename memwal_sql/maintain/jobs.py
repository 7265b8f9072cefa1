"""The background jobs of a table: what they call, when they are due, and the record of a run."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from threading import TIMEOUT_MAX
from typing import Protocol
from uuid import UUID

import pyarrow as pa

from memwal_sql.arguments import is_number, is_whole
from memwal_sql.errors import InvalidCallError, MemWalError
from memwal_sql.maintain.progress import Report
from memwal_sql.maintain.unflushed import UnflushedLog
from planner.model import Snapshot

FLUSH = "flush"
MERGE = "merge"
INDEX = "index"
COMPACT = "compact"
SNAPSHOT = "snapshot"
COLLECT = "gc"
JOBS = (FLUSH, MERGE, INDEX, COMPACT, SNAPSHOT, COLLECT)


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

    def open_rows(self) -> int:
        """The unflushed rows of the open writers of this process."""

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
        outcome: its result, such as `4 generations merged`, or the error's text.
        error: the error that ended it.
    """

    job: str
    outcome: str
    seconds: float
    error: MemWalError | None = None

    def __repr__(self) -> str:
        return f"JobRun({self.job!r}, {self.outcome!r}, {self.seconds:.3f} s)"
