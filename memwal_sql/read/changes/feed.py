"""`table.changes`: the change feeds of a table's regions as one stream that can be resumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

import pyarrow as pa

from memwal_sql.errors import ChangesCollectedError, InvalidCallError, TornEntryError
from memwal_sql.read.changes.offsets import BEGINNING, ChangeOffset, Offsets, Place, parse_place
from memwal_sql.read.changes.region_feed import RegionChanges, feed_schema
from memwal_sql.read.pinned import PinnedRegion, PinnedSnapshot
from memwal_sql.read.region import RegionReader
from memwal_sql.read.registry import RegionRegistry
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from planner.regions.ids import region_id
from planner.regions.spec import MANUAL_SPEC_ID


def changes(
    context: TableContext,
    base: BaseTable,
    registry: RegionRegistry,
    *,
    region: str | UUID | None,
    after: Offsets | None,
    until: Offsets | None,
    columns: Sequence[str],
    old_rows: bool,
) -> pa.RecordBatchReader:
    """See `Table.changes`; `columns` are columns of the table."""
    schema = feed_schema(base.info, columns, old_rows=old_rows)
    taken = sorted(set(columns) & set(schema.names[len(columns) :]))
    if taken:
        raise InvalidCallError(f"the change feed has columns {taken} of its own: leave them out")
    readers = registry.regions(base)
    regions = _chosen(context, readers, region)
    starts = _places(context, readers, regions, after, "after")
    ends = _places(context, readers, regions, until, "until")
    work = []
    for reader in regions:
        feed = RegionChanges(context, reader, base, columns, old_rows=old_rows)
        start, end = starts.get(reader.region_id, BEGINNING), ends.get(reader.region_id)
        for offset in (start, end):
            if offset is not None and not feed.reaches(offset):
                raise InvalidCallError(
                    f"region {reader.name} has not reached WAL position {offset.position} yet: "
                    "give a place of this table's own feed"
                )
        if until is None or end is not None:
            work.append((feed, start, end))
    return pa.RecordBatchReader.from_batches(schema, _stream(work))


def change_offsets(
    context: TableContext, base: BaseTable, registry: RegionRegistry
) -> dict[str, list[int]]:
    """See `Table.change_offsets`."""
    ends = {}
    for region in registry.regions(base):
        end = RegionChanges(context, region, base, ()).end()
        ends[str(region.region_id)] = [end.position, end.generation or 0]
    return ends


def past_offsets(
    context: TableContext, base: BaseTable, state: PinnedSnapshot
) -> dict[str, list[int]]:
    """The places after everything that a past state has."""
    return {
        str(region.manifest.region_id): [
            region.wal_end - 1,
            _last_generation(context, base, region),
        ]
        for region in state.regions
    }


def _last_generation(context: TableContext, base: BaseTable, region: PinnedRegion) -> int:
    manifest, wal = region.manifest, context.wal(region.manifest.region_id, base.stored)
    for position in range(region.wal_end - 1, manifest.replay_after_wal_entry_position, -1):
        try:
            entry = wal.read(position)
        except TornEntryError:
            continue
        if entry is None:
            raise ChangesCollectedError(
                f"{wal.path(position)}, which the state has, was collected since: make a checkpoint"
            )
        if not entry.is_fence:
            return entry.generation or manifest.current_generation
    return manifest.current_generation - 1


def _stream(
    work: Sequence[tuple[RegionChanges, ChangeOffset, ChangeOffset | None]],
) -> Iterator[pa.RecordBatch]:
    for feed, start, end in work:
        yield from feed.batches(start, end)


def _chosen(
    context: TableContext, regions: Sequence[RegionReader], name: str | UUID | None
) -> list[RegionReader]:
    if name is None:
        return list(regions)
    matching = [reader for reader in regions if _is_named(context, reader, name)]
    if not matching:
        raise InvalidCallError(
            f"no region {str(name)!r}; there are {[reader.name for reader in regions]}"
        )
    return matching


def _is_named(context: TableContext, region: RegionReader, name: str | UUID) -> bool:
    given_by_hand = region_id(context.incarnation, MANUAL_SPEC_ID, {"name": str(name)})
    return str(name) in (str(region.region_id), region.name) or region.region_id == given_by_hand


def _places(
    context: TableContext,
    readers: Sequence[RegionReader],
    regions: Sequence[RegionReader],
    offsets: Offsets | None,
    argument: str,
) -> dict[UUID, ChangeOffset]:
    """Places by region id; a mapping may name regions that are not read."""
    if offsets is None:
        return {}
    if isinstance(offsets, Mapping):
        return dict(_named(context, readers, name, place) for name, place in offsets.items())
    if len(regions) != 1:
        raise InvalidCallError(
            f"{argument}={offsets!r} is a place in one region, but there are {len(regions)}: "
            "name the region, or give a place for each as a mapping"
        )
    return {regions[0].region_id: parse_place(offsets)}


def _named(
    context: TableContext, regions: Sequence[RegionReader], name: str, place: Place
) -> tuple[UUID, ChangeOffset]:
    matching = _chosen(context, regions, name)
    if len(matching) > 1:
        raise InvalidCallError(f"{len(matching)} regions are named {name!r}: give the region's id")
    return matching[0].region_id, parse_place(place)
