"""A merge in passes of this process, each a commit of Lance's merge-insert."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from memwal_sql.errors import RepairError
from memwal_sql.life_log import life_log
from memwal_sql.maintain.lease import Lease
from memwal_sql.maintain.merge.commit import TooLargeError, too_little_memory
from memwal_sql.maintain.merge.merger import Generations, Work, fitting, listed, writer_of
from memwal_sql.maintain.merge.rows import GenerationRows, codes_of, newest_of, open_rows
from memwal_sql.maintain.progress import Progress, Report
from memwal_sql.read.region import RegionReader
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.storage.objects.concurrent import map_remote

_log = life_log(__name__)

# A third of the memory pool in which Lance joins the rows of a pass (LANCE_MEM_POOL_SIZE).
MAX_PASS_BYTES = 100_000_000
LEAST_PASS_BYTES = 1024 * 1024


@dataclass(frozen=True)
class _Pass:
    """Rows that are deleted, by their keys, or upserted, and how many there are of each region."""

    rows: Sequence[int]
    deletes: bool
    read: Callable[[], pa.Table]


class Passes:
    """Chooses what fits into passes of so many bytes, of fewer once Lance had too little memory."""

    def __init__(
        self, context: TableContext, report: Report, max_bytes: int = MAX_PASS_BYTES
    ) -> None:
        self._context = context
        self._report = report
        self._max_bytes = max_bytes

    def choose(self, base: BaseTable, behind: Generations) -> Work:
        together = self._together(base, behind)
        generations = {region: behind[region][: len(rows)] for region, rows in together.items()}
        passes = list(self._passes(list(together.values())))
        total = [sum(rows) for rows in zip(*(each.rows for each in passes), strict=True)]
        merge = partial(self._merge, base, generations, passes, total)
        return Work(generations, total, len(passes) > 1, merge)

    def _together(
        self, base: BaseTable, behind: Generations
    ) -> Mapping[RegionReader, Sequence[GenerationRows]]:
        """The next generations of each region that fit into one commit: Lance reads the base
        table's keys, and makes a version, once for all of them.

        Tombstones take a pass of their own, which is the same for all regions: where the first
        region's generation has some, one generation of each is merged, else those without. A
        damaged generation raises once it is the first one left.
        """
        chosen = fitting(behind, self._max_bytes)
        store = self._context.store
        opened = map_remote(store.remote, lambda pair: self._opened(base, *pair), chosen)
        together: dict[RegionReader, list[GenerationRows]] = {}
        room, parts = float(self._max_bytes), False
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
        return {
            region: newest_of(rows, codes_of(rows)) if rows[1:] else rows
            for region, rows in together.items()
        }

    def _opened(
        self, base: BaseTable, region: RegionReader, generation: int
    ) -> GenerationRows | RepairError:
        try:
            flushed = listed(base, region, generation)
            return open_rows(self._context, region.region_id, flushed, base.dataset)
        except RepairError as error:
            return error

    def _passes(self, together: Sequence[Sequence[GenerationRows]]) -> Iterator[_Pass]:
        """Tombstones first, as they need their keys only, then the other rows: in slices where they
        are of one generation, which may be too large."""
        deletes = [sum(rows.deletes.num_rows for rows in own) for own in together]
        generations = [rows for own in together for rows in own]
        if any(deletes):
            keys = partial(pa.concat_tables, [rows.deletes for rows in generations])
            yield _Pass(deletes, True, keys)
        if len(generations) == 1:
            [rows] = generations
            for start, end, part in rows.slices(self._max_bytes):
                yield _Pass([part], False, partial(rows.read, start, end))
            return
        upserts = [sum(rows.upserts for rows in own) for own in together]
        if any(upserts):
            yield _Pass(upserts, False, partial(self._all_rows, generations))

    def _all_rows(self, generations: Sequence[GenerationRows]) -> pa.Table:
        remote = self._context.store.remote
        return pa.concat_tables(map_remote(remote, GenerationRows.read_all, generations))

    def _merge(
        self,
        base: BaseTable,
        generations: Generations,
        passes: Sequence[_Pass],
        total: Sequence[int],
        lease: Lease,
    ) -> Any:
        _log.debug(
            "%s: merging generations of %d regions over version %d in %d passes",
            self._context.uri,
            len(generations),
            base.version,
            len(passes),
        )
        writer, written = writer_of(base, generations), [0] * len(total)
        writer.fence()
        for number, merge_pass in enumerate(passes):
            if number:
                lease.renew()
            commit = writer.delete if merge_pass.deletes else writer.upsert
            try:
                commit(merge_pass.read(), last=merge_pass is passes[-1])
            except TooLargeError as error:
                self._halve(error)
                raise
            for place, region in enumerate(generations):
                written[place] += merge_pass.rows[place]
                progress = Progress("merge", region.name, written[place], total[place], "rows")
                self._report(progress)
        return writer.dataset

    def _halve(self, error: TooLargeError) -> None:
        self._max_bytes //= 2
        _log.debug("a pass was too large, the next is of %d bytes", self._max_bytes)
        if self._max_bytes < LEAST_PASS_BYTES:
            raise too_little_memory(self._context.uri, error) from error
