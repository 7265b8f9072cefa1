"""An image of a table: its live rows in memory, one a key, and what it has taken in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import TypeAlias

import pyarrow as pa

from exec_nodes.base.columns import TOMBSTONE
from exec_nodes.base.tasks import in_background
from exec_nodes.base.thresholds import Thresholds
from exec_nodes.keys.keys import is_integral, key_column, one_array
from memwal_native import LiveImage
from memwal_sql.read.closed import Place, TableRead
from memwal_sql.read.live.check import check_live
from memwal_sql.read.live.taken import (
    ClosedRegion,
    ImageLostError,
    News,
    Taken,
    news_of,
    taken_region,
)
from memwal_sql.read.planning import batches
from memwal_sql.state.base_table import BaseTable, BaseTracker
from memwal_sql.state.context import TableContext
from memwal_sql.state.lost_rows import LOST
from memwal_sql.state.tail import Tail
from memwal_sql.storage.base.memwal_index import FoundDetails, read_details_at
from planner.model import LiveTable, Query, Snapshot
from planner.plan import plan

Change: TypeAlias = tuple[pa.RecordBatch, pa.Array, pa.BooleanArray | None]


class Live(Thresholds):
    """When rows are kept live.

    Attributes:
        enabled: whether they are at all, 1 or 0.
        least_rows: smaller tables are quick anyway.
        checked: whether each look is compared with them, 1 or 0.
        waited: whether the query that asks first waits for them, 1 or 0.
    """

    enabled = 0
    least_rows = 10_000
    checked = 0
    waited = 0


class TableImage:
    """The live rows of one table handle, if it has them.

    Looks are taken in one after the other. What an image has is always a closed state: the union of
    two closed states is one, too, so each transaction is whole in it or not there.
    """

    def __init__(self, context: TableContext, tracker: BaseTracker) -> None:
        self._context = context
        self._tracker = tracker
        self._lock = Lock()
        self._live: LiveImage | None = None
        self._is_building = False
        self.reason = "no query has asked yet"

    def advance(self, read: TableRead, tails: Mapping[Place, Tail]) -> LiveImage | None:
        """The live rows with all that a closed look has read. Where they can't have it, they are
        dropped, `reason` says why, and the answer is None."""
        with self._lock:
            live = self._live
            if live is None:
                return None
            try:
                changes, taken = self._changes(live.state, read.base, _closed(read, tails))
            except ImageLostError as error:
                self._live, self.reason = None, str(error)
                return None
            self._live = None  # unless all of it is applied
            live.apply(changes, taken)
            self._live = live
            return live

    def of(
        self, read: TableRead, tails: Mapping[Place, Tail], snapshot: Snapshot
    ) -> LiveTable | None:
        """The live rows of the snapshot that was made of a closed look. If the image does not exist
        yet, its build begins, and the answer is None."""
        if not Live.enabled:
            return None
        live = self.advance(read, tails)
        if live is not None:
            if Live.checked and not read.pruned:
                check_live(live, snapshot)
            return LiveTable(live, live.state)
        rows = sum(source.rows for source in snapshot.sources)
        if rows >= Live.least_rows and not read.pruned and not self._is_building:
            self._is_building = True
            build = partial(self._build_once, read, tails, snapshot)
            if Live.waited or not in_background(build, is_long=True):
                build()
        return None

    def _build_once(self, read: TableRead, tails: Mapping[Place, Tail], snapshot: Snapshot) -> None:
        try:
            self.build(read, tails, snapshot)
        finally:
            self._is_building = False

    def build(self, read: TableRead, tails: Mapping[Place, Tail], snapshot: Snapshot) -> None:
        """Have the live rows of the snapshot that was made of a closed look."""
        lost = LOST.count
        base, schema = read.base, snapshot.info.schema
        columns = tuple(schema.names)
        key = snapshot.info.primary_key
        closed = _closed(read, tails)
        regions = {region.reader.region_id: taken_region(region, None) for region in closed}
        newest = self._newest(base.version, base.found)
        if newest is None:
            self.reason = "the base version is gone"
            return
        version, details = newest
        is_word = len(key) == 1 and is_integral(schema.field(key[0]).type)
        place = schema.get_field_index(key[0]) if is_word else None
        taken = Taken(base, version, details, regions, lost)
        live = LiveImage(schema, place, taken)
        for column in range(len(columns)):
            live.admit(column)
        rows = batches(plan(Query(columns, (), None), snapshot))
        live.apply([(batch, _keys(batch, key), None) for batch in rows if batch.num_rows], taken)
        with self._lock:
            self._live, self.reason = live, ""

    def _changes(
        self, taken: Taken, base: BaseTable, closed: Sequence[ClosedRegion]
    ) -> tuple[list[Change], Taken]:
        if taken.lost != (lost := LOST.count):
            raise ImageLostError("rows of a buffered writer were lost")
        newest = self._newest(taken.version, taken.details)
        if newest is None:
            raise ImageLostError("the base table has other rows")
        if base.stored is not taken.base.stored and not base.stored.equals(taken.base.stored):
            raise ImageLostError("the table has other columns")
        version, details = newest
        news, regions = list[News](), dict(taken.regions)
        for region in closed:
            before = taken.regions.get(region.reader.region_id)
            news += news_of(region, before, base, details.details.merged_generations)
            regions[region.reader.region_id] = taken_region(region, before)
        key, schema = base.info.primary_key, taken.base.info.schema
        changes = [change for part in news for change in _rows(part, schema, key)]
        return changes, Taken(taken.base, version, details, regions, lost)

    def _newest(self, version: int, details: FoundDetails) -> tuple[int, FoundDetails] | None:
        """The newest version and what was found in it. None if a version from this one on has other
        rows than the version before, apart from merged generations."""
        if not self._tracker.is_there(version):
            return None
        while self._tracker.is_there(version + 1):
            newer = read_details_at(self._context.store, version + 1)
            if newer is None or not newer.preserves_rows_of(details):
                return None
            version, details = version + 1, newer
        return version, details


def _closed(read: TableRead, tails: Mapping[Place, Tail]) -> list[ClosedRegion]:
    closed = []
    for region in read.regions:
        reader, unflushed = region.reader, region.unflushed
        tail = tails[reader.place] if tails else unflushed.tail
        closed.append(ClosedRegion(reader, unflushed.manifest, tail, reader.is_quiet))
    return closed


def _rows(news: News, schema: pa.Schema, key: Sequence[str]) -> Iterator[Change]:
    """Rows from the `first` on, with their keys, and which are deleted."""
    columns = [*schema.names, TOMBSTONE]
    skipped = news.first
    for part in range(news.source.parts):
        for batch in news.source.scan(columns, (), None, part):
            rows = batch.slice(min(skipped, batch.num_rows))
            skipped -= batch.num_rows - rows.num_rows
            if rows.num_rows:
                own = pa.RecordBatch.from_arrays(
                    [rows.column(name) for name in schema.names], schema=schema
                )
                yield own, _keys(rows, key), rows.column(TOMBSTONE)


def _keys(batch: pa.RecordBatch, key: Sequence[str]) -> pa.Array:
    return one_array(key_column([batch.column(name) for name in key]))
