"""Flushes the logs of a table's regions, whoever wrote them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from memwal_sql.errors import ConflictError, FencedError
from memwal_sql.maintain.unflushed import UnflushedLog, newest_rows, unflushed_logs
from memwal_sql.state.context import TableContext
from memwal_sql.state.open_writers import last_epoch, live_writer, open_table_writers
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.region.manifest import RegionManifest, RegionStatus
from memwal_sql.storage.retries import over_conflicts
from memwal_sql.table.handle import TableHandle
from memwal_sql.table.staging import publisher


def flush(table: TableHandle) -> int:
    """See `Table.flush`."""
    table.check_writable("flush")
    context, fences = table.context, table.fences

    def flush_all() -> int:
        for writer in open_table_writers(context.identity):
            writer.flush_usable()
        others = [m for m in table.manifests() if not _is_own(context, m)]
        rows = map_remote(
            context.store.remote, lambda manifest: newest_rows(context, manifest, fences), others
        )
        unflushed = [
            manifest for manifest, entry in zip(others, rows, strict=True) if entry is not None
        ]
        return _claim_and_flush(table, unflushed)

    return over_conflicts(flush_all, table.uri, on=(FencedError, ConflictError))


def logs_of_others(
    table: TableHandle, *, with_ages: bool = False, refresh: bool = True
) -> list[UnflushedLog]:
    """See `Table.unflushed_logs`."""
    context = table.context
    if refresh:
        manifests = table.manifests()
    else:
        manifests = [region.manifest for region in table.collector.registry.loaded()]
    others = [manifest for manifest in manifests if not _is_own(context, manifest)]

    def is_closed(manifest: RegionManifest) -> bool:
        return last_epoch(context.identity, manifest.region_id) == manifest.writer_epoch

    return unflushed_logs(context, others, table.fences, with_ages=with_ages, is_closed=is_closed)


def open_rows(table: TableHandle) -> int:
    """See `Table.open_rows`."""
    context = table.context
    own = [m.region_id for m in table.manifests() if _is_own(context, m)]
    writers = [live_writer(context.identity, region) for region in own]
    return sum(writer.unflushed_rows for writer in writers if writer is not None)


def flush_regions(table: TableHandle, regions: Collection[UUID]) -> int:
    """See `Table.flush_regions`."""
    table.check_writable("flush")
    try:
        return _claim_and_flush(table, [m for m in table.manifests() if m.region_id in regions])
    except FencedError as error:
        raise ConflictError(str(error)) from error


def _claim_and_flush(table: TableHandle, regions: Sequence[RegionManifest]) -> int:
    alive = [manifest for manifest in regions if manifest.status is not RegionStatus.SEALED]
    if alive:
        publisher(table).empty_wals(alive)
    return len(alive)


def _is_own(context: TableContext, manifest: RegionManifest) -> bool:
    """Whether a writer of this process has the region."""
    writer = live_writer(context.identity, manifest.region_id)
    return writer is not None and writer.is_usable and writer.epoch == manifest.writer_epoch
