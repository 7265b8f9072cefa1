"""The merger: flushed generations move into the base table (specification 2, "MemTable Merger").

Per region in ascending order, each by Lance's merge-insert with its progress in the same commit.
Any number of mergers may run: who comes too late is refused by Lance and looks again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from memwal_sql.errors import MaintenanceLostError, RepairError, RetryError
from memwal_sql.maintain.details import latest_dataset, maintenance
from memwal_sql.maintain.generation_rows import GenerationRows, open_rows
from memwal_sql.maintain.lease import Lease
from memwal_sql.maintain.passes import OvertakenError, PassWriter, TooLargeError
from memwal_sql.maintain.progress import Progress, Report
from memwal_sql.read.base import BaseTable, load_base
from memwal_sql.read.context import TableContext
from memwal_sql.read.recorded import recorded_regions
from memwal_sql.read.region import RegionReader
from memwal_sql.storage.memory_store import lance_uri
from memwal_sql.storage.merge_token import passes_done
from memwal_sql.storage.paths import generation_uri

# Lance joins the rows of a pass in a memory pool of 300 MB (LANCE_MEM_POOL_SIZE).
MAX_PASS_BYTES = 128 * 1024 * 1024
LEAST_PASS_BYTES = 1024 * 1024
_ATTEMPTS = 20
_PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class _Next:
    """A generation to be merged, and the base version over which it is the next one."""

    base: BaseTable
    generation: int
    rows: GenerationRows


@dataclass(frozen=True)
class _Pass:
    """The tombstones of a generation, or its rows from `start` up to `end`, exclusive."""

    deletes: bool = False
    start: int = 0
    end: int = 0


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
        merged = failures = 0
        while True:
            try:
                done = self._step(region, last)
            except TooLargeError as error:
                self._max_pass_bytes //= 2
                if self._max_pass_bytes < LEAST_PASS_BYTES:
                    raise RetryError(
                        f"region {region.name}: Lance had too little memory for a merge; give it "
                        f"more by LANCE_MEM_POOL_SIZE: {error}"
                    ) from error
            except (OvertakenError, MaintenanceLostError) as error:
                failures += 1
                if failures == _ATTEMPTS:
                    raise RetryError(
                        f"region {region.name}: other commits to {self._context.uri} came in "
                        f"between {failures} times; run the merge again"
                    ) from error
                self._sleep(_PAUSE_SECONDS * failures * random.random())  # noqa: S311
            else:
                if not done:
                    return merged
                merged, failures = merged + 1, 0

    def _step(self, region: RegionReader, last: int) -> bool:
        """Merge the next generation up to `last`; False when there is none."""
        while True:
            with maintenance(self._context, "merge") as lease:
                work = self._next(region, last)
                if work is None:
                    return False
                passes = list(self._passes(work.rows))
                if len(passes) == 1 or _is_recorded(self._context, region, work):
                    self._merge(lease, region, work, passes)
                    return True
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
            flushed = next((one for one in listed if one.generation == merged + 1), None)
            try:
                if flushed is None:
                    raise RepairError(
                        f"region {region.region_id} does not list generation {merged + 1}, which "
                        f"is to be merged over version {base.version}: see table.check()"
                    )
                uri = generation_uri(lance_uri(self._context.uri), region.region_id, flushed.path)
                key, options = base.info.primary_key, self._context.storage_options
                rows = open_rows(uri, flushed.rows, base.dataset, key, options)
                return _Next(base, merged + 1, rows)
            except RepairError:
                # Somebody else may have merged and collected it since the base was read.
                if merged == before:
                    raise
                before = merged

    def _passes(self, rows: GenerationRows) -> Iterator[_Pass]:
        """Tombstones first, as they need their keys only, then slices of the other rows."""
        if rows.deletes.num_rows:
            yield _Pass(deletes=True)
        for start, end in rows.slices(self._max_pass_bytes):
            yield _Pass(start=start, end=end)

    def _merge(
        self, lease: Lease, region: RegionReader, work: _Next, passes: Sequence[_Pass]
    ) -> None:
        key, progress = work.base.info.primary_key, work.base.details.merged_generations
        done = passes_done(progress, region.region_id, work.generation)
        writer = PassWriter(work.base.dataset, key, region.region_id, work.generation, done)
        written = 0
        for one in passes:
            if written:
                lease.renew()
            last = one is passes[-1]
            if one.deletes:
                writer.delete(table := work.rows.deletes, last=last)
            else:
                writer.upsert(table := work.rows.read(one.start, one.end), last=last)
            written += table.num_rows
            total = max(written, work.rows.deletes.num_rows + work.rows.upserts)
            self._report(Progress("merge", region.name, written, total, "rows"))


def _is_recorded(context: TableContext, region: RegionReader, work: _Next) -> bool:
    """Whether readers of a version that holds a part of the generation find all of it."""
    return any(
        one.region_id == region.region_id and one.current_generation > work.generation
        for one in recorded_regions(context, work.base) or ()
    )
