"""The regions recorded in the MemWAL index of a base version (specification 1)."""

from __future__ import annotations

from memwal_sql.errors import NotFoundError
from memwal_sql.read.base import BaseTable
from memwal_sql.read.context import TableContext
from memwal_sql.storage.region_manifest import RegionManifest
from memwal_sql.storage.region_snapshot import decode_regions, external_path


def recorded_regions(context: TableContext, base: BaseTable) -> list[RegionManifest] | None:
    """The region states recorded at `base`; None when none were, or the file has gone.

    Every progress mark gives the index a new folder and so orphans an external snapshot
    (protocol rule 23): readers that miss it take the region manifests instead.
    """
    details = base.details
    if details.snapshot_ts_millis == 0:
        return None
    if details.num_regions == 0:
        return []
    key = ("recorded regions", base.source.identity)
    cached = context.cache.get(key)
    if cached is None:
        try:
            data = details.inline_snapshots or context.store.get(
                external_path(str(details.index_uuid))
            )
        except NotFoundError:
            return None
        cached = decode_regions(data, base.info.region_specs)
        context.cache.put(key, cached, len(data))
    return list(cached)
