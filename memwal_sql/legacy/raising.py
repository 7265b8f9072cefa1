"""Raises a table of version 1, as memwal_sql 0.1 made it, to the version that takes transactions.

Programs of version 1 would show, and flush, rows of transactions that are not committed. So they
are shut out before the first transaction, in this order (`storage/format_versions`):

1. The next record `table` asks for version 2: who opens the table, claims a region or flushes is
   refused from now on.
2. A new base version is committed: readers look at the record when they meet it.
3. Every region is claimed: writers that were open are fenced.
4. Another record says that this is done. Until then nobody begins a transaction, and another
   upgrade does all of it again, which is harmless.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from uuid import UUID

from memwal_sql.errors import FencedError, NotFoundError, RegionSealedError
from memwal_sql.maintain.details import change_details
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.state.open_writers import note_claim
from memwal_sql.state.replay import memtables_of
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.paths import MEM_WAL_FOLDER, region_of
from memwal_sql.storage.records.table import TableRecord, raise_record
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.storage.retries import with_retries
from memwal_sql.table import Table
from memwal_sql.write.claim import claim
from planner.regions.values import region_name


def raise_version(table: Table, record: TableRecord) -> None:
    """Let a table take transactions whose newest record is `record`.

    Raises RetryError if others keep coming in between: run it again.
    """
    context = table.context
    if not record.is_raising:
        record = raise_record(context.store, record, is_done=False)
    context = replace(context, record=record)
    change_details(context, "upgrade", lambda rewrite: rewrite.details)
    base = table.collector.catch_up()
    folders = map(region_of, context.store.list_folders(MEM_WAL_FOLDER))
    regions = [region for region in folders if region is not None]
    map_remote(context.store.remote, partial(_claim, context, base), regions)
    context.store.sync("")
    raise_record(context.store, record, is_done=True)


def _claim(context: TableContext, base: BaseTable, region: UUID) -> None:
    """Fence the region's writer. A writer of today claims it again in its next turn."""
    manifests = RegionManifests(context.store, region)
    wal = context.wal(region, base.stored)
    make = memtables_of(base.info, region_name(region, None))

    def attempt() -> None:
        try:
            won = claim(manifests, wal, make, context.check_writes)
        except (NotFoundError, RegionSealedError):
            return  # it has no manifest, or takes no writers
        note_claim(context.identity, region, won.claim.epoch)

    with_retries(attempt, f"claiming region {region}", on=FencedError)
