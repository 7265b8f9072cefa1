"""The merger: flushed generations move into the base table (specification 2, "MemTable Merger").

Per region in ascending order, with the progress in the same commit as the last rows. Which
generations are merged together, and by what commits, is the choice of `passes` or `shares`. Any
number of mergers may run: Lance refuses the one that comes too late, which then reads the progress
again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from memwal_sql.errors import ConflictError, MaintenanceLostError, RepairError
from memwal_sql.life_log import life_log
from memwal_sql.maintain.details import latest_dataset, maintenance, rewrite_details
from memwal_sql.maintain.lease import Lease
from memwal_sql.maintain.merge.commit import PassWriter, TooLargeError
from memwal_sql.maintain.region_snapshots import Recording
from memwal_sql.read.recorded import recorded_regions
from memwal_sql.read.region import RegionReader
from memwal_sql.state.base_table import BaseTable, load_base
from memwal_sql.state.context import TableContext
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.region.manifest import FlushedGeneration, RegionManifest
from memwal_sql.storage.retries import over_conflicts
from memwal_sql.telemetry import MERGED_GENERATIONS, MERGED_ROWS

_log = life_log(__name__)

Generations = Mapping[RegionReader, range]
"""Numbers of generations, ascending, by region."""


@dataclass(frozen=True)
class Work:
    """Generations that are merged together.

    Attributes:
        rows: how many rows those of each region have.
        in_parts: whether it takes several commits.
        merge: makes them; gives the dataset of the last one's version. Raises ConflictError,
            MaintenanceLostError and TooLargeError, after which other work is chosen.
    """

    generations: Generations
    rows: Sequence[int]
    in_parts: bool
    merge: Callable[[Lease], Any]


Choose = Callable[[BaseTable, Generations], Work]
"""Chooses some of the generations that the base version lacks, of each region the first ones, and
at least one. Raises RepairError where the first one is missing or damaged."""


class Merger:
    """Merges what regions have flushed.

    `regions_now` are the states of all regions, to be recorded: before generations are merged in
    several commits, so that every version in between can be read, and after the last ones (protocol
    rule 18).
    """

    def __init__(
        self,
        context: TableContext,
        regions_now: Callable[[BaseTable], Sequence[RegionManifest]],
        choose: Choose,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._context = context
        self._regions_now = regions_now
        self._choose = choose
        self._sleep = sleep
        self._merged = Counter[RegionReader]()

    def run(self, regions: Sequence[RegionReader], base: BaseTable) -> Counter[RegionReader]:
        """Merge every generation that is flushed by now; how many of each region this job merged.
        `base` is a version that has just been the newest.

        Raises RepairError where a generation's folder is missing or damaged, and
        StoreUnavailableError; what was merged by then stays merged.
        """
        remote, self._merged = self._context.store.remote, Counter()
        manifests = map_remote(remote, RegionReader.refresh, regions)
        for region in regions:
            region.check_progress(base)
        pairs = zip(regions, manifests, strict=True)
        last = {region: manifest.current_generation - 1 for region, manifest in pairs}
        # Without anything to do nobody else is kept from their work.
        is_done = not _behind(base, last)
        while not is_done:
            with suppress(TooLargeError):  # what is chosen next is smaller
                is_done = over_conflicts(
                    partial(self._step, last),
                    f"a merge into {self._context.uri}",
                    on=(ConflictError, MaintenanceLostError),
                    sleep=self._sleep,
                )
        return self._merged

    def _step(self, last: Mapping[RegionReader, int]) -> bool:
        """Merge the next generations, and record the regions after the last ones; whether nothing
        is left."""
        with maintenance(self._context, "merge") as lease:
            base, work = self._next(last)
            recorded = None
            while work.in_parts and not _is_recorded(self._context, base, work):
                progress = base.details.merged_generations
                if progress == recorded:
                    raise RepairError(
                        f"the regions of {self._context.uri} can't be recorded, as they must be "
                        "before a merge in parts: files of a region that is merged in part are "
                        "missing, see table.check()"
                    )
                recorded = progress
                _log.debug("%s: recorded before a merge in parts", self._context.uri)
                self._record(lease, base, base.dataset)
                lease.renew()
                base, work = self._next(last)
            dataset = work.merge(lease)
            self._tell(work)
            is_last = work.generations == _behind(base, last)
            if is_last and self._merged:
                self._record(lease, base, dataset)
            return is_last

    def _record(self, lease: Lease, base: BaseTable, dataset: Any) -> None:
        manifests = self._regions_now(base)
        recording = Recording(self._context.store, base, manifests)
        version = rewrite_details(self._context, lease, dataset, recording)
        uri, regions = self._context.uri, len(manifests)
        _log.info("recorded %d regions of %s in version %d", regions, uri, version)

    def _next(self, last: Mapping[RegionReader, int]) -> tuple[BaseTable, Work]:
        """The newest base version, and what to merge next, which is nothing if all are merged."""
        before = None
        while True:
            base = load_base(self._context, latest_dataset(self._context))
            behind = _behind(base, last)
            if not behind:
                return base, Work({}, (), in_parts=False, merge=partial(_nothing, base))
            try:
                return base, self._choose(base, _disjoint(base, behind))
            except RepairError:
                # Somebody else may have merged and collected it since manifest and base were read.
                if base.details.merged_generations == before:
                    raise
                before = base.details.merged_generations
                map_remote(self._context.store.remote, RegionReader.refresh, behind)

    def _tell(self, work: Work) -> None:
        for (region, generations), rows in zip(work.generations.items(), work.rows, strict=True):
            self._merged[region] += len(generations)
            MERGED_ROWS(rows, {"table": self._context.uri})
            MERGED_GENERATIONS(len(generations), {"table": self._context.uri})
            _log.info(
                "merged generations %d to %d of region %s into %s: %d rows",
                generations[0],
                generations[-1],
                region.region_id,
                self._context.uri,
                rows,
            )


def writer_of(base: BaseTable, generations: Generations) -> PassWriter:
    """The writer of commits that merge these generations over a base version."""
    by_id = {region.region_id: numbers for region, numbers in generations.items()}
    progress = base.details.merged_generations
    return PassWriter(base.dataset, base.info.primary_key, by_id, progress)


def fitting(behind: Generations, room: int) -> list[tuple[RegionReader, int]]:
    """The next generation of every region, then the one after it and so on, as far as they fit
    into `room` bytes by what the manifests say of their size."""
    chosen: list[tuple[RegionReader, int]] = []
    remaining, place = dict(behind), 0
    while remaining:
        for region, numbers in tuple(remaining.items()):
            flushed = _flushed(region, numbers[place]) if place < len(numbers) else None
            size = 0 if flushed is None else flushed.bytes or 0
            if place == len(numbers) or (chosen and size > room):
                del remaining[region]
            else:
                chosen.append((region, numbers[place]))
                room -= size
        place += 1
    return chosen


def _nothing(base: BaseTable, _: Lease) -> Any:
    return base.dataset


def _disjoint(base: BaseTable, behind: Generations) -> Generations:
    """The first region, and the others that can't have a key of it or of one another: one commit
    takes a key once. Regions given by hand, or by columns outside of the key, can."""
    first = next(iter(behind))
    spec = base.info.spec(first.spec_id)
    if first.values is None or spec is None or not spec.reads_only(base.info.primary_key):
        return {first: behind[first]}
    return {
        region: numbers
        for region, numbers in behind.items()
        if region.values is not None and region.spec_id == first.spec_id
    }


def _behind(base: BaseTable, last: Mapping[RegionReader, int]) -> dict[RegionReader, range]:
    """The generations that a base version lacks, by region."""
    merged = base.details.merged_generations
    lacking = {
        region: range(merged.get(region.region_id, 0) + 1, last[region] + 1) for region in last
    }
    return {region: numbers for region, numbers in lacking.items() if numbers}


def listed(base: BaseTable, region: RegionReader, generation: int) -> FlushedGeneration:
    """A generation that is to be merged. Raises RepairError for a missing one."""
    flushed = _flushed(region, generation)
    if flushed is None:
        raise RepairError(
            f"region {region.region_id} does not list generation {generation}, which is to be "
            f"merged over version {base.version}: see table.check()"
        )
    return flushed


def _flushed(region: RegionReader, generation: int) -> FlushedGeneration | None:
    listed = region.manifest.flushed_generations
    return next((flushed for flushed in listed if flushed.generation == generation), None)


def _is_recorded(context: TableContext, base: BaseTable, work: Work) -> bool:
    """Whether readers of a version that holds a part of the generations find all of them."""
    recorded = {manifest.region_id: manifest for manifest in recorded_regions(context, base) or ()}
    return all(
        (manifest := recorded.get(region.region_id)) is not None
        and manifest.current_generation > generations[-1]
        for region, generations in work.generations.items()
    )
