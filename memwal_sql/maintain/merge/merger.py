"""The merger: flushed generations move into the base table (specification 2, "MemTable Merger").

Per region in ascending order, by Lance's merge-insert with the progress in the same commit; those
that fit into one commit are merged together.
Any number of mergers may run: who comes too late is refused by Lance and looks again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

import pyarrow as pa

from memwal_sql.errors import MaintenanceLostError, RepairError, RetryError
from memwal_sql.maintain.details import latest_dataset, maintenance
from memwal_sql.maintain.lease import Lease
from memwal_sql.maintain.merge.commit import PassWriter, TooLargeError
from memwal_sql.maintain.merge.rows import GenerationRows, newest_of, open_rows
from memwal_sql.maintain.progress import Progress, Report
from memwal_sql.read.recorded import recorded_regions
from memwal_sql.read.region import RegionReader
from memwal_sql.state.base_table import BaseTable, load_base
from memwal_sql.state.context import TableContext
from memwal_sql.storage.base.merge_token import passes_done
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.paths import generation_uri
from memwal_sql.storage.region.manifest import FlushedGeneration
from memwal_sql.storage.retries import ConflictError, over_conflicts

_log = logging.getLogger(__name__)

# Half of the memory pool in which Lance joins the rows of a pass (LANCE_MEM_POOL_SIZE).
MAX_PASS_BYTES = 150_000_000
LEAST_PASS_BYTES = 1024 * 1024


@dataclass(frozen=True)
class _Next:
    """Generations to be merged together, their numbers and the rows of each, and the base version
    over which they are the next ones."""

    base: BaseTable
    generations: range
    rows: Sequence[GenerationRows]


@dataclass(frozen=True)
class _Pass:
    """Rows that are deleted, by their keys, or upserted."""

    rows: int
    deletes: bool
    read: Callable[[], pa.Table]


class Merger:
    """Merges what regions have flushed.

    `record` records the states of all regions: before a generation is merged in several passes,
    so that every version in between can be read, and after the job (protocol rule 18).
    """

    def __init__(
        self,
        context: TableContext,
        record: Callable[[], object],
        report: Report,
        *,
        max_pass_bytes: int = MAX_PASS_BYTES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._context = context
        self._record = record
        self._report = report
        self._max_pass_bytes = max_pass_bytes
        self._sleep = sleep

    def run(self, regions: Sequence[RegionReader]) -> int:
        """Merge every generation that is flushed by now; how many of them this job merged.

        Raises RepairError where a generation's folder is missing or damaged, and
        StoreUnavailableError; what was merged by then stays merged.
        """
        merged = 0
        for region in regions:
            last = region.refresh().current_generation - 1
            merged += self._merge_region(region, last)
        if merged:
            self._record()
        return merged

    def _merge_region(self, region: RegionReader, last: int) -> int:
        """How many generations were merged."""
        merged = 0
        while True:
            try:
                done = over_conflicts(
                    partial(self._step, region, last),
                    f"a merge of region {region.name} into {self._context.uri}",
                    on=(ConflictError, MaintenanceLostError),
                    sleep=self._sleep,
                )
            except TooLargeError as error:
                self._max_pass_bytes //= 2
                _log.debug(
                    "region %s: a pass was too large, the next is of %d bytes",
                    region.region_id,
                    self._max_pass_bytes,
                )
                if self._max_pass_bytes < LEAST_PASS_BYTES:
                    raise RetryError(
                        f"region {region.name}: Lance had too little memory for a merge; give it "
                        f"more by LANCE_MEM_POOL_SIZE: {error}"
                    ) from error
            else:
                if not done:
                    return merged
                merged += done

    def _step(self, region: RegionReader, last: int) -> int:
        """Merge the next generations up to `last`; how many: 0 when there is none."""
        while True:
            with maintenance(self._context, "merge") as lease:
                work = self._next(region, last)
                if work is None:
                    return 0
                passes = list(self._passes(work.rows))
                if len(passes) == 1 or _is_recorded(self._context, region, work):
                    self._merge(lease, region, work, passes)
                    return len(work.rows)
            _log.debug("region %s: recorded before a merge in parts", region.region_id)
            self._record()

    def _next(self, region: RegionReader, last: int) -> _Next | None:
        """What is to be merged next, over the base version that says so."""
        before = -1
        while True:
            base = load_base(self._context, latest_dataset(self._context))
            merged = base.details.merged_generations.get(region.region_id, 0)
            if merged >= last:
                return None
            listed = region.refresh().flushed_generations
            flushed = {one.generation: one for one in listed}
            try:
                if merged + 1 not in flushed:
                    raise RepairError(
                        f"region {region.region_id} does not list generation {merged + 1}, which "
                        f"is to be merged over version {base.version}: see table.check()"
                    )
                after = takewhile(flushed.__contains__, range(merged + 1, last + 1))
                rows = self._together(self._open(base, region, flushed[one]) for one in after)
                return _Next(base, range(merged + 1, merged + 1 + len(rows)), rows)
            except RepairError:
                # Somebody else may have merged and collected it since the base was read.
                if merged == before:
                    raise
                before = merged

    def _open(
        self, base: BaseTable, region: RegionReader, flushed: FlushedGeneration
    ) -> GenerationRows:
        uri = generation_uri(lance_uri(self._context.uri), region.region_id, flushed.path)
        key, options = base.info.primary_key, self._context.storage_options
        return open_rows(uri, flushed.rows, base.dataset, key, options)

    def _together(self, generations: Iterator[GenerationRows]) -> list[GenerationRows]:
        """The first generation, and those after it that fit into one commit with it: Lance reads
        the base table's keys, and makes a version, once for all of them.

        One that has tombstones is merged by itself, in several passes. What is wrong with a later
        one is found when it is the first.
        """
        found = [next(generations)]
        if found[0].deletes.num_rows:
            return found
        room = self._max_pass_bytes - found[0].nbytes
        with suppress(RepairError):
            for one in generations:
                if one.deletes.num_rows or (room := room - one.nbytes) < 0:
                    break
                found.append(one)
        return newest_of(found) if len(found) > 1 else found

    def _passes(self, generations: Sequence[GenerationRows]) -> Iterator[_Pass]:
        """Tombstones first, as they need their keys only, then slices of the other rows."""
        [rows, *others] = generations
        if others:
            upserts = sum(one.upserts for one in generations)
            yield _Pass(upserts, False, partial(_all_rows, generations))
            return
        if rows.deletes.num_rows:
            yield _Pass(rows.deletes.num_rows, True, lambda: rows.deletes)
        for start, end, upserts in rows.slices(self._max_pass_bytes):
            yield _Pass(upserts, False, partial(rows.read, start, end))

    def _merge(
        self, lease: Lease, region: RegionReader, work: _Next, passes: Sequence[_Pass]
    ) -> None:
        key, progress = work.base.info.primary_key, work.base.details.merged_generations
        done = passes_done(progress, region.region_id, work.generations[0])
        writer = PassWriter(work.base.dataset, key, region.region_id, work.generations, done)
        written, total = 0, sum(one.rows for one in passes)
        _log.debug(
            "region %s: merging generations %d to %d over version %d in %d passes",
            region.region_id,
            work.generations[0],
            work.generations[-1],
            work.base.version,
            len(passes),
        )
        for one in passes:
            if written:
                lease.renew()
            commit = writer.delete if one.deletes else writer.upsert
            commit(one.read(), last=one is passes[-1])
            written += one.rows
            self._report(Progress("merge", region.name, written, total, "rows"))
        _log.info(
            "merged generations %d to %d of region %s into %s: %d rows",
            work.generations[0],
            work.generations[-1],
            region.region_id,
            self._context.uri,
            written,
        )


def _all_rows(generations: Sequence[GenerationRows]) -> pa.Table:
    return pa.concat_tables([one.read_all() for one in generations])


def _is_recorded(context: TableContext, region: RegionReader, work: _Next) -> bool:
    """Whether readers of a version that holds a part of the generation find all of it."""
    return any(
        one.region_id == region.region_id and one.current_generation > work.generations[-1]
        for one in recorded_regions(context, work.base) or ()
    )
