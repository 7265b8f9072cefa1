"""Recording the state of all regions in the MemWAL index (specification 2, "MemWAL Index Builder").

`eventual` readers plan from the record, without opening a manifest, and a pinned version is read
with the record that it has (protocol rule 18).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from memwal_sql.errors import MemWalError, TornEntryError
from memwal_sql.maintain.details import Rewrite, change_details
from memwal_sql.state.context import TableContext
from memwal_sql.storage.base.memwal_index import IndexDetails
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.region.manifest import RegionManifest, RegionManifests
from memwal_sql.storage.region.snapshot_file import INLINE_REGIONS, encode_regions, external_path
from memwal_sql.storage.wal.log import Wal
from planner.regions.spec import RegionSpec

_log = logging.getLogger(__name__)


def record_regions(
    context: TableContext,
    manifests: Sequence[RegionManifest],
    specs: Sequence[RegionSpec],
    clock: Callable[[], float] = time.time,
) -> int:
    """Record `manifests` in a new version of the base table, and return that version.

    Up to 100 regions are kept inline, more in `_indices/{uuid}/index.lance`. Raises RetryError
    when other commits kept coming in between.
    """
    data = encode_regions(manifests, specs)
    inline = data if len(manifests) <= INLINE_REGIONS else None

    def recorded(rewrite: Rewrite) -> IndexDetails:
        if inline is None:
            context.store.put_if_absent(external_path(rewrite.index_uuid), data)
        return replace(
            rewrite.details,
            snapshot_ts_millis=int(clock() * 1000),
            num_regions=len(manifests),
            inline_snapshots=inline,
        )

    version = change_details(context, "snapshot_regions", recorded)
    _log.info("recorded %d regions of %s in version %d", len(manifests), context.uri, version)
    return version


def note_last_seen(store: ObjectStore, manifest: RegionManifest) -> RegionManifest:
    """Write the position of the last WAL entry with rows into a region's manifest.

    Best effort: gives the manifest as it is when somebody else changes it now. A torn entry must
    never be noted, as everything up to the hint counts as complete; rows were only ever written
    above entries that are complete or recorded as skipped.
    """
    known = max(manifest.replay_after_wal_entry_position, manifest.wal_entry_position_last_seen)
    wal = Wal(store, manifest.region_id)
    with suppress(MemWalError):
        if not wal.exists(known + 1):
            return manifest
        for position in reversed([one for one in wal.positions() if one > known]):
            if _has_rows(wal, position):
                manifests = RegionManifests(store, manifest.region_id)
                return manifests.commit(manifest, wal_entry_position_last_seen=position)
    return manifest


def _has_rows(wal: Wal, position: int) -> bool:
    try:
        entry = wal.read(position)
    except TornEntryError:
        return False
    return entry is not None and not entry.is_fence
