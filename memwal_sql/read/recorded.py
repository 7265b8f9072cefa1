"""The regions recorded in the MemWAL index of a base version (specification 1)."""

from __future__ import annotations

from memwal_sql.read.base import BaseTable
from memwal_sql.read.context import TableContext
from memwal_sql.storage.base_versions import recorded_manifests
from memwal_sql.storage.region_manifest import RegionManifest

_BYTES_PER_REGION = 1024


def recorded_regions(context: TableContext, base: BaseTable) -> list[RegionManifest] | None:
    """The region states recorded at `base`; None when none were, or the file has gone.

    Readers of the present then take the region manifests instead; a version that was asked for
    reads as the base table alone (protocol rules 18 and 23).
    """
    key = ("recorded regions", base.source.identity)
    cached: list[RegionManifest] | None = context.cache.get(key)
    if cached is None:
        cached = recorded_manifests(context.store, base.details, base.info.region_specs)
        if cached is None:
            return None
        context.cache.put(key, cached, _BYTES_PER_REGION * len(cached))
    return list(cached)
