"""The merger: flushed generations move into the base table (specification 2, "MemTable Merger").

Per region in ascending order, by Lance's merge-insert with the progress in the same commit; those
of all regions that fit into one commit are merged together. Any number of mergers may run: Lance
refuses the one that comes too late, which then reads the progress again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from memwal_sql.errors import ConflictError, MaintenanceLostError, RepairError, RetryError
from memwal_sql.life_log import life_log
from memwal_sql.maintain.details import latest_dataset, maintenance, rewrite_details
from memwal_sql.maintain.lease import Lease
from memwal_sql.maintain.merge.commit import PassWriter, TooLargeError
from memwal_sql.maintain.merge.rows import GenerationRows, codes_of, newest_of, open_rows
from memwal_sql.maintain.progress import Progress, Report
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

# A third of the memory pool in which Lance joins the rows of a pass (LANCE_MEM_POOL_SIZE).
MAX_PASS_BYTES = 100_000_000
LEAST_PASS_BYTES = 1024 * 1024


@dataclass(frozen=True)
class RegionShare:
    """One region's share of a commit: generations by number, and the rows of each."""

    region: RegionReader
    generations: range
    rows: Sequence[GenerationRows]


@dataclass(frozen=True)
class _Pass:
    """Rows that are deleted, by their keys, or upserted, and how many there are of each share."""

    rows: Sequence[int]
    deletes: bool
    read: Callable[[], pa.Table]


@dataclass(frozen=True)
class NextMerge:
    """The generations of the next commit, over the base version whose progress they follow; none if
    all are merged. `is_last` says that nothing will be left afterwards."""

    base: BaseTable
    shares: Sequence[RegionShare] = ()
    passes: Sequence[_Pass] = ()
    is_last: bool = True


class Merger:
    """Merges what regions have flushed.

    `regions_now` are the states of all regions, to be recorded: before generations are merged in
    several passes, so that every version in between can be read, and after the last ones (protocol
    rule 18).
    """

    def __init__(
        self,
        context: TableContext,
        regions_now: Callable[[BaseTable], Sequence[RegionManifest]],
        report: Report,
        *,
        max_pass_bytes: int = MAX_PASS_BYTES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._context = context
        self._regions_now = regions_now
        self._report = report
        self._max_pass_bytes = max_pass_bytes
        self._sleep = sleep
        self._merged = 0

    def run(self, regions: Sequence[RegionReader], base: BaseTable) -> int:
        """Merge every generation that is flushed by now; how many of them this job merged. `base`
        is a version that has just been the newest.

        Raises RepairError where a generation's folder is missing or damaged, and
        StoreUnavailableError; what was merged by then stays merged.
        """
        remote, self._merged = self._context.store.remote, 0
        manifests = map_remote(remote, RegionReader.refresh, regions)
        for region in regions:
            region.check_progress(base)
        pairs = zip(regions, manifests, strict=True)
        last = {region: manifest.current_generation - 1 for region, manifest in pairs}
        # Without anything to do nobody else is kept from their work.
        is_done = not _behind(base, last)
        while not is_done:
            try:
                is_done = over_conflicts(
                    partial(self._step, last),
                    f"a merge into {self._context.uri}",
                    on=(ConflictError, MaintenanceLostError),
                    sleep=self._sleep,
                )
            except TooLargeError as error:
                self._max_pass_bytes //= 2
                _log.debug("a pass was too large, the next is of %d bytes", self._max_pass_bytes)
                if self._max_pass_bytes < LEAST_PASS_BYTES:
                    raise RetryError(
                        f"{self._context.uri}: Lance had too little memory for a merge; give it "
                        f"more by LANCE_MEM_POOL_SIZE: {error}"
                    ) from error
        return self._merged

    def _step(self, last: Mapping[RegionReader, int]) -> bool:
        """Merge the next generations, and record the regions after the last ones; whether nothing
        is left."""
        with maintenance(self._context, "merge") as lease:
            work = self._next(last)
            recorded = None
            while self._in_parts(work) and not _is_recorded(self._context, work):
                progress = work.base.details.merged_generations
                if progress == recorded:
                    raise RepairError(
                        f"the regions of {self._context.uri} can't be recorded, as they must be "
                        "before a merge in parts: files of a region that is merged in part are "
                        "missing, see table.check()"
                    )
                recorded = progress
                _log.debug("%s: recorded before a merge in parts", self._context.uri)
                self._record(lease, work.base, work.base.dataset)
                lease.renew()
                work = self._next(last)
            dataset = work.base.dataset
            if work.shares:
                dataset = self._merge(lease, work)
                self._merged += sum(len(share.generations) for share in work.shares)
            if work.is_last and self._merged:
                self._record(lease, work.base, dataset)
            return work.is_last

    def _in_parts(self, work: NextMerge) -> bool:
        """Whether it takes several commits."""
        return len(work.passes) > 1

    def _record(self, lease: Lease, base: BaseTable, dataset: Any) -> None:
        manifests = self._regions_now(base)
        recording = Recording(self._context.store, base, manifests)
        version = rewrite_details(self._context, lease, dataset, recording)
        uri, regions = self._context.uri, len(manifests)
        _log.info("recorded %d regions of %s in version %d", regions, uri, version)

    def _next(self, last: Mapping[RegionReader, int]) -> NextMerge:
        """The generations to merge next, over the base version with that progress."""
        before = None
        while True:
            base = load_base(self._context, latest_dataset(self._context))
            behind = _behind(base, last)
            if not behind:
                return NextMerge(base)
            try:
                shares = self._together(base, _disjoint(base, behind))
            except RepairError:
                # Somebody else may have merged and collected it since manifest and base were read.
                if base.details.merged_generations == before:
                    raise
                before = base.details.merged_generations
                map_remote(self._context.store.remote, RegionReader.refresh, behind)
            else:
                passes = list(self._passes(shares))
                merged = {share.region: share.generations[-1] for share in shares}
                is_last = all(merged.get(region) == last[region] for region in behind)
                return NextMerge(base, shares, passes, is_last)

    def _together(self, base: BaseTable, behind: Mapping[RegionReader, range]) -> list[RegionShare]:
        """The next generations of each region that fit into one commit: Lance reads the base
        table's keys, and makes a version, once for all of them.

        Tombstones take a pass of their own, which is the same for all regions: where the first
            region's generation has some, one generation of each is merged, else those without. A
            fault of a later generation is reported when that is the first.
        """
        chosen = self._fitting(behind)
        store = self._context.store
        opened = map_remote(store.remote, lambda pair: self._opened(base, *pair), chosen)
        together: dict[RegionReader, list[GenerationRows]] = {}
        room, parts = float(self._max_pass_bytes), False
        closed = set[RegionReader]()
        for (region, _), rows in zip(chosen, opened, strict=True):
            if region in closed:
                continue
            if not isinstance(rows, GenerationRows):
                if not together:
                    raise rows
                closed.add(region)
                continue
            if not together:
                parts = bool(rows.deletes.num_rows)
            elif rows.nbytes > room or (rows.deletes.num_rows and not parts):
                closed.add(region)
                continue
            together.setdefault(region, []).append(rows)
            room -= rows.nbytes
            if parts:
                closed.add(region)
        return [
            RegionShare(
                region,
                behind[region][: len(rows)],
                newest_of(rows, codes_of(rows)) if rows[1:] else rows,
            )
            for region, rows in together.items()
        ]

    def _fitting(self, behind: Mapping[RegionReader, range]) -> list[tuple[RegionReader, int]]:
        """The next generation of every region, then the one after it and so on, as far as they fit
        into one commit by what the manifests say of their size."""
        fitting: list[tuple[RegionReader, int]] = []
        room, remaining, place = self._max_pass_bytes, dict(behind), 0
        while remaining:
            for region, numbers in tuple(remaining.items()):
                flushed = _flushed(region, numbers[place]) if place < len(numbers) else None
                size = 0 if flushed is None else flushed.bytes or 0
                if place == len(numbers) or (fitting and size > room):
                    del remaining[region]
                else:
                    fitting.append((region, numbers[place]))
                    room -= size
            place += 1
        return fitting

    def _opened(
        self, base: BaseTable, region: RegionReader, generation: int
    ) -> GenerationRows | RepairError:
        try:
            flushed = listed(base, region, generation)
            return open_rows(self._context, region.region_id, flushed, base.dataset)
        except RepairError as error:
            return error

    def _passes(self, shares: Sequence[RegionShare]) -> Iterator[_Pass]:
        """Tombstones first, as they need their keys only, then the other rows: in slices where they
        are of one generation, which may be too large."""
        deletes = [sum(part.deletes.num_rows for part in share.rows) for share in shares]
        generations = [part for share in shares for part in share.rows]
        if any(deletes):
            keys = partial(pa.concat_tables, [part.deletes for part in generations])
            yield _Pass(deletes, True, keys)
        if len(generations) == 1:
            [rows] = generations
            for start, end, part in rows.slices(self._max_pass_bytes):
                yield _Pass([part], False, partial(rows.read, start, end))
            return
        upserts = [sum(part.upserts for part in share.rows) for share in shares]
        if any(upserts):
            yield _Pass(upserts, False, partial(self._all_rows, generations))

    def _all_rows(self, generations: Sequence[GenerationRows]) -> pa.Table:
        remote = self._context.store.remote
        return pa.concat_tables(map_remote(remote, GenerationRows.read_all, generations))

    def _merge(self, lease: Lease, work: NextMerge) -> Any:
        """Commit them; the dataset of the last version that was made."""
        writer = self._writer(work)
        _log.debug(
            "%s: merging generations of %d regions over version %d in %d passes",
            self._context.uri,
            len(work.shares),
            work.base.version,
            len(work.passes),
        )
        written = [0] * len(work.shares)
        total = [
            sum(rows) for rows in zip(*(merge_pass.rows for merge_pass in work.passes), strict=True)
        ]
        writer.fence()
        for number, merge_pass in enumerate(work.passes):
            if number:
                lease.renew()
            commit = writer.delete if merge_pass.deletes else writer.upsert
            commit(merge_pass.read(), last=merge_pass is work.passes[-1])
            for place, share in enumerate(work.shares):
                written[place] += merge_pass.rows[place]
                name = share.region.name
                self._report(Progress("merge", name, written[place], total[place], "rows"))
        self._tell(work, total)
        return writer.dataset

    def _writer(self, work: NextMerge) -> PassWriter:
        key, progress = work.base.info.primary_key, work.base.details.merged_generations
        generations = {share.region.region_id: share.generations for share in work.shares}
        return PassWriter(work.base.dataset, key, generations, progress)

    def _tell(self, work: NextMerge, rows_of_shares: Sequence[int]) -> None:
        for share, rows in zip(work.shares, rows_of_shares, strict=True):
            MERGED_ROWS(rows, {"table": self._context.uri})
            MERGED_GENERATIONS(len(share.generations), {"table": self._context.uri})
            _log.info(
                "merged generations %d to %d of region %s into %s: %d rows",
                share.generations[0],
                share.generations[-1],
                share.region.region_id,
                self._context.uri,
                rows,
            )


def _disjoint(
    base: BaseTable, behind: Mapping[RegionReader, range]
) -> Mapping[RegionReader, range]:
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


def _is_recorded(context: TableContext, work: NextMerge) -> bool:
    """Whether readers of a version that holds a part of the generations find all of them."""
    recorded = {
        manifest.region_id: manifest for manifest in recorded_regions(context, work.base) or ()
    }
    return all(
        (manifest := recorded.get(share.region.region_id)) is not None
        and manifest.current_generation > share.generations[-1]
        for share in work.shares
    )
