"""The compactor: fragments of the base table are joined, and deleted rows left out.

Each group of fragments is a commit of Lance's own (`Rewrite`), which keeps the merge progress and
the records of the regions, and moves the entries of indexes to the new rows. Lance refuses it where
somebody else has changed one of these fragments, and refuses a merge that has looked at them
before: who comes second looks again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from lance.optimize import Compaction, CompactionOptions, CompactionTask, RewriteResult

from exec_nodes.lance.errors import BASE_NAME, lance_errors
from exec_nodes.lance.indexes import moved_fragments
from memwal_sql.errors import ConflictError, MaintenanceLostError, UnsupportedError
from memwal_sql.life_log import life_log
from memwal_sql.maintain.compact.groups import Fragment, groups_of
from memwal_sql.maintain.details import dataset_at, latest_dataset, maintenance
from memwal_sql.maintain.index_builder import build_indexes, column_indexes
from memwal_sql.maintain.progress import Progress, Report, report_nothing
from memwal_sql.maintain.region_snapshots import record_regions
from memwal_sql.read.recorded import recorded_regions
from memwal_sql.state.base_table import BaseTable, load_base
from memwal_sql.state.context import TableContext
from memwal_sql.storage.base.commits import base_commit
from memwal_sql.storage.deadlines import check_deadline
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.retries import over_conflicts

_log = life_log(__name__)

JOB = "compact"
_WHAT = "the compaction"
# Whatever the table's own configuration says: postings and places of keys are read from the files
# of an index, so that these must be right at once.
_OPTIONS: CompactionOptions = {"defer_index_remap": False, "materialize_deletions": True}
Group = tuple[Fragment, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Extent:
    """The extent of a compaction; see `groups_of`."""

    least: int | None = None
    share: float = 0.1

    def groups(
        self, dataset: Any, is_left: Callable[[Fragment], bool] = lambda _: True
    ) -> list[Group]:
        """The groups in a version of the base table, of some of its fragments.

        Raises UnsupportedError where there are some, and Lance would compact them wrongly.
        """
        fragments = list(filter(is_left, _fragments(dataset)))
        if not groups_of(fragments, self.least, self.share):
            return []  # whatever covers them
        chosen = groups_of(_indexed(dataset, fragments), self.least, self.share)
        if chosen and moved_fragments(dataset):
            # Rows were missing from filters by a zone map then (pylance 14.0.2).
            raise UnsupportedError(
                f"{dataset.uri} was compacted by another client with defer_index_remap=True, and "
                "its indexes do not follow a second compaction: write the rows into a new table"
            )
        return chosen


class Compactor:
    """Compacts the base table.

    `regions_now` are the states of all regions: where the record of them is a file of its own, a
    compaction leaves that behind, as every merge does, and they are recorded again.
    """

    def __init__(
        self,
        context: TableContext,
        regions_now: Callable[[BaseTable], Sequence[RegionManifest]],
        report: Report = report_nothing,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._context = context
        self._regions_now = regions_now
        self._report = report
        self._sleep = sleep

    def run(self, extent: Extent, newest: Any) -> int:
        """Compact the current fragments; returns how many were rewritten. `newest`
        is a version that has just been the newest.

        Raises ContentionError where others keep changing them, and StoreUnavailableError; what was
        compacted by then stays so.
        """
        # Without anything to do nobody else is kept from their work.
        if not extent.groups(newest):
            return 0
        dataset = self._begin()
        last = max((fragment.number for fragment in _fragments(dataset)), default=-1)
        refused = set[int]()

        def is_left(fragment: Fragment) -> bool:
            return fragment.number <= last and fragment.number not in refused

        step, done = partial(self._step, extent, is_left), 0
        while True:
            group, remaining, written = self._over_conflicts(step)
            if not group:
                break
            if not written:
                refused.update(fragment.number for fragment in group)
            done += written
            self._report(Progress(JOB, None, done, done + remaining, "fragments"))
        self._end(done)
        return done

    def plan(self, extent: Extent) -> list[CompactionTask]:
        """The same in tasks, which any processes `execute`; `commit` takes what they return."""
        dataset = self._begin()
        return [task for group in extent.groups(dataset) for task in _tasks(dataset, group)]

    def execute(self, task: CompactionTask) -> RewriteResult:
        """Write the new fragments of a task, which nobody sees yet."""
        return _execute(task, dataset_at(self._context, task.read_version))

    def commit(self, results: Iterable[RewriteResult]) -> int:
        """Put new fragments in place of the old ones, as far as nobody has changed these since; how
        many these were."""
        done = 0
        for result in results:
            try:
                with maintenance(self._context, JOB):
                    done += _commit(self._context, latest_dataset(self._context), [result])
            except (ConflictError, MaintenanceLostError) as error:
                what, reason = result.metrics.fragments_removed, type(error).__name__
                _log.warning(
                    "%s: %d fragments were not replaced: %s", self._context.uri, what, reason
                )
        self._end(done)
        return done

    def _begin(self) -> Any:
        """Bring indexes up to date, as fragments that one covers are never joined to others; the
        newest version."""
        build_indexes(self._context, report_nothing)
        return latest_dataset(self._context)

    def _end(self, done: int) -> None:
        """See to it that the new fragments are in all indexes, some kinds of which lose rewritten
        fragments, and that the regions are recorded if they were before."""
        if not done:
            return
        build_indexes(self._context, report_nothing)
        base = load_base(self._context, latest_dataset(self._context))
        if base.details.snapshot_ts_millis and recorded_regions(self._context, base) is None:
            record_regions(self._context, base, self._regions_now(base))
        _log.info("compacted %s: %d fragments were rewritten", self._context.uri, done)

    def _over_conflicts(self, step: Callable[[], T]) -> T:
        name, on = f"a compaction of {self._context.uri}", (ConflictError, MaintenanceLostError)
        return over_conflicts(step, name, on=on, sleep=self._sleep)

    def _step(self, extent: Extent, is_left: Callable[[Fragment], bool]) -> tuple[Group, int, int]:
        """Compact the next group: this group, how many fragments are left in others, and how many
        were rewritten."""
        with maintenance(self._context, JOB):
            dataset = latest_dataset(self._context)
            groups = extent.groups(dataset, is_left)
            if not groups:
                return (), 0, 0
            results = [_execute(task, dataset) for task in _tasks(dataset, groups[0])]
            return groups[0], sum(map(len, groups[1:])), _commit(self._context, dataset, results)


def _tasks(dataset: Any, group: Group) -> list[CompactionTask]:
    """The tasks in which Lance compacts a group; none where it can't join its fragments."""
    numbers = {fragment.number for fragment in group}
    others = [fragment.fragment_id for fragment in dataset.get_fragments()]
    options: CompactionOptions = {
        # One fragment is made of all.
        "target_rows_per_fragment": sum(fragment.rows for fragment in group) + 1,
        "materialize_deletions_threshold": 0.0,
        "excluded_fragment_ids": [number for number in others if number not in numbers],
        **_OPTIONS,
    }
    with lance_errors(BASE_NAME, dataset.uri):
        tasks: list[CompactionTask] = Compaction.plan(dataset, options).tasks
    return tasks


def _execute(task: CompactionTask, dataset: Any) -> RewriteResult:
    """Write the new fragments of a task; `dataset` is at its version."""
    check_deadline(dataset.uri)
    with base_commit(dataset.uri, _WHAT):  # of the numbers of the new fragments
        return task.execute(dataset)


def _commit(context: TableContext, dataset: Any, results: Sequence[RewriteResult]) -> int:
    """Put the new fragments of some tasks in place of the old ones; how many these were. `dataset`
    is moved on. Raises ConflictError where others have changed one of them since."""
    if not results:
        return 0
    check_deadline(context.uri)
    with base_commit(context.uri, _WHAT):
        Compaction.commit(dataset, list(results), _OPTIONS)
    removed = sum(result.metrics.fragments_removed for result in results)
    _log.debug("%s: %d fragments compacted in version %d", context.uri, removed, dataset.version)
    return removed


def _fragments(dataset: Any) -> list[Fragment]:
    with lance_errors(BASE_NAME, dataset.uri):
        metadata = [fragment.metadata for fragment in dataset.get_fragments()]
    return [
        Fragment(
            entry.id,
            entry.physical_rows,
            entry.num_deletions,
            sum(file.file_size_bytes or 0 for file in entry.files),
        )
        for entry in metadata
    ]


def _indexed(dataset: Any, fragments: Sequence[Fragment]) -> list[Fragment]:
    """The same with the segments of indexes that cover them."""
    segments: dict[int, set[str]] = {}
    for index in column_indexes(dataset):
        for segment in index.segments:
            for number in segment.fragment_ids:
                segments.setdefault(number, set()).add(segment.uuid)
    return [
        replace(fragment, indexed=frozenset(segments.get(fragment.number, ())))
        for fragment in fragments
    ]
