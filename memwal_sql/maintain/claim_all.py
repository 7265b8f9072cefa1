"""Claiming every region of a table, which fences all writers that it had."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from memwal_sql.errors import FencedError, NotFoundError, RegionSealedError
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.state.open_writers import note_claim
from memwal_sql.state.replay import memtables_of
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.region.versions import RegionManifests, region_ids
from memwal_sql.storage.retries import with_retries
from memwal_sql.write.claim import claim
from planner.regions.values import region_name


def claim_all(context: TableContext, base: BaseTable) -> None:
    """Claim the regions that exist. Raises as `claim` does."""
    regions = region_ids(context.store)
    map_remote(context.store.remote, partial(_claim, context, base), regions)


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
