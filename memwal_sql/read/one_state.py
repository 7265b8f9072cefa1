"""Several tables in one state: every transaction is in all of them or in none (protocol rule
T12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from memwal_sql.errors import NotFoundError, SourceGoneError
from memwal_sql.read.base_versions import ATTEMPTS
from memwal_sql.read.closed import TableRead, read_closed
from memwal_sql.read.region import StaleBaseError, gap_error
from memwal_sql.read.snapshots import SnapshotCollector
from memwal_sql.state.base_table import BaseTable
from memwal_sql.storage.objects.concurrent import map_remote, run_with
from planner.model import Snapshot


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of one of the tables.

    Attributes:
        ends: the last WAL position that the snapshot has of each region.
        epochs: the writer epoch of each region.
    """

    base: BaseTable
    snapshot: Snapshot
    ends: Mapping[UUID, int]
    epochs: Mapping[UUID, int]


def one_state(collectors: Sequence[SnapshotCollector]) -> list[TableState]:
    """The current states of some tables. Raises as `BaseVersions.over_base`, and
    ContentionError where they are flushed again and again meanwhile."""
    gap: Exception = StaleBaseError()
    for _ in range(ATTEMPTS):
        try:
            reads = _reads(collectors)
            pairs = zip(collectors, reads, strict=True)
            return [_state(collector, table_read) for collector, table_read in pairs]
        except (StaleBaseError, NotFoundError, SourceGoneError) as error:
            gap = error
            for collector in collectors:
                collector.versions.catch_up()
    raise gap_error(gap)


def places_now(collector: SnapshotCollector) -> dict[UUID, tuple[int, int]]:
    """The last WAL position and the writer epoch of each region of a table, now."""
    read = collector.query(
        "strong", lambda base: collector.regions.read(base, (), strong=True, since={})
    )
    return {
        region.reader.region_id: (region.unflushed.tail.end, region.unflushed.manifest.writer_epoch)
        for region in read.regions
    }


def moved_since(
    collector: SnapshotCollector, ends: Mapping[UUID, int], epochs: Mapping[UUID, int]
) -> UUID | None:
    """A region of a table that was written or claimed after a state with these `ends` and `epochs`,
    if there is one."""
    for region, (end, epoch) in places_now(collector).items():
        if (end, epoch) != (ends.get(region, 0), epochs.get(region, 0)):
            return region
    return None


def _state(collector: SnapshotCollector, read: TableRead) -> TableState:
    snapshot = collector.regions.snapshot_of(read)
    ends, epochs = {}, {}
    for region in read.regions:
        region_id, unflushed = region.reader.region_id, region.unflushed
        ends[region_id] = unflushed.tail.end
        epochs[region_id] = unflushed.manifest.writer_epoch
    return TableState(read.base, replace(snapshot, indexes=read.base.indexes.infos), ends, epochs)


def _reads(collectors: Sequence[SnapshotCollector]) -> Sequence[TableRead]:
    """Closed reads of some tables. On a remote store they are made over the versions that are
    loaded, while newer ones are looked for, and again if there is one: errors of the first reads do
    not count."""
    remote = any(collector.remote for collector in collectors)
    loaded = [collector.served for collector in collectors]
    taken: list[Sequence[TableRead]] = []

    def take_loaded() -> None:
        with suppress(Exception):
            taken.append(read_closed(partial(_read, collectors, loaded)))

    def newest() -> list[BaseTable]:
        return map_remote(remote, lambda collector: collector.base_for("strong"), collectors)

    bases = run_with(True, newest, take_loaded) if remote else newest()
    if taken and all(base is first for base, first in zip(bases, loaded, strict=True)):
        return taken[0]
    return read_closed(partial(_read, collectors, bases))


def _read(collectors: Sequence[SnapshotCollector], bases: Sequence[BaseTable]) -> list[TableRead]:
    seen = {
        reader: end for collector in collectors for reader, end in collector.regions.seen().items()
    }

    def read(pair: tuple[SnapshotCollector, BaseTable]) -> TableRead:
        collector, base = pair
        return collector.regions.read(base, (), strong=True, since=seen)

    remote = any(collector.remote for collector in collectors)
    return list(map_remote(remote, read, zip(collectors, bases, strict=True)))
