"""Merges and compactions of a table's regions and base."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from exec_nodes.base.tasks import map_concurrently
from memwal_sql.arguments import is_number, is_whole, name_list
from memwal_sql.errors import InvalidCallError
from memwal_sql.maintain.compact.compactor import Compactor, Extent
from memwal_sql.maintain.merge.merger import Merger
from memwal_sql.maintain.merge.passes import Passes
from memwal_sql.maintain.progress import Report, report_nothing
from memwal_sql.maintain.region_snapshots import note_last_seen
from memwal_sql.read.region import RegionReader
from memwal_sql.state.base_table import BaseTable
from memwal_sql.storage.objects.concurrent import run_with
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.table.handle import TableHandle


def merge(
    table: TableHandle, progress: Report | None = None, regions: Sequence[str] | None = None
) -> int:
    """See `Table.merge`."""
    table.check_present("merge")
    context = table.context
    regions_to_merge = run_with(
        context.store.remote, table.collector.regions_to_merge, context.check_writes
    )
    if regions is not None:
        regions_to_merge = _chosen(regions_to_merge, name_list("regions", regions))
    passes = Passes(context, progress or report_nothing)
    merger = Merger(context, partial(regions_now, table), passes.choose)
    return merger.run(regions_to_merge, table.tracker.loaded).total()


def _chosen(regions: Sequence[RegionReader], chosen: Sequence[str]) -> list[RegionReader]:
    names = {name for region in regions for name in (region.name, str(region.region_id))}
    unknown = sorted(set(chosen) - names)
    if unknown:
        raise InvalidCallError(
            f"there are no regions {unknown}; there are {[region.name for region in regions]}"
        )
    return [region for region in regions if {region.name, str(region.region_id)} & set(chosen)]


def compact(
    table: TableHandle,
    progress: Report | None,
    fragments: int | None,
    deleted: float,
    *,
    dry_run: bool,
) -> int:
    """See `Table.compact`."""
    if fragments is not None and not is_whole(fragments, least=2):
        raise InvalidCallError(f"fragments={fragments!r} must be a whole number, 2 or more")
    if not is_number(deleted) or not 0 < deleted <= 1:
        raise InvalidCallError(f"deleted={deleted!r} must be a number above 0, up to 1")
    (table.check_present if dry_run else table.check_writable)("compact")
    extent, dataset = Extent(fragments, deleted), table.tracker.latest().dataset
    if dry_run:
        return sum(map(len, extent.groups(dataset)))
    return compactor(table, progress or report_nothing).run(extent, dataset)


def compactor(table: TableHandle, report: Report = report_nothing) -> Compactor:
    """Compacts the base table."""
    return Compactor(table.context, partial(regions_now, table), report)


def regions_now(table: TableHandle, base: BaseTable) -> list[RegionManifest]:
    """The recorded states of all regions."""
    store = table.context.store
    return map_concurrently(
        lambda region: region.with_values(note_last_seen(store, region.refresh())),
        table.collector.registry.regions(base),
    )
