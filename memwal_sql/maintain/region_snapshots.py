"""Recording the state of all regions in the MemWAL index (specification 2, "MemWAL Index Builder").

`eventual` readers plan from the record, without opening a manifest, and a pinned version is read
with the record that it has (protocol rule 18).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from memwal_sql.errors import MemWalError, NotFoundError, TornEntryError
from memwal_sql.life_log import life_log
from memwal_sql.maintain.details import Rewrite, change_details
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.storage.base.memwal_index import IndexDetails
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.snapshot_file import INLINE_REGIONS, encode_regions, external_path
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.storage.wal.log import Wal

_log = life_log(__name__)


class Recording:
    """The states of all regions, `manifests`, to be recorded in details of the MemWAL index; their
    specs are those of `base`.

    Up to 100 regions are kept inline, more in `_indices/{uuid}/index.lance`.
    """

    def __init__(
        self,
        store: ObjectStore,
        base: BaseTable,
        manifests: Sequence[RegionManifest],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._regions = len(manifests)
        self._data = encode_regions(manifests, base.info.region_specs)
        self._clock = clock

    def is_in(self, details: IndexDetails) -> bool:
        """Whether this is what `details` have recorded."""
        if not details.snapshot_ts_millis or details.num_regions != self._regions:
            return False
        if self._regions <= INLINE_REGIONS:
            return details.inline_snapshots == self._data
        with suppress(NotFoundError):
            return self._store.get(external_path(str(details.index_uuid))) == self._data
        return False

    def __call__(self, rewrite: Rewrite) -> IndexDetails | None:
        """The details with the record; None where it is there."""
        if self.is_in(rewrite.details):
            return None
        is_inline = self._regions <= INLINE_REGIONS
        if not is_inline:
            self._store.put_if_absent(external_path(rewrite.index_uuid), self._data)
        return replace(
            rewrite.details,
            snapshot_ts_millis=int(self._clock() * 1000),
            num_regions=self._regions,
            inline_snapshots=self._data if is_inline else None,
        )


def record_regions(
    context: TableContext,
    base: BaseTable,
    manifests: Sequence[RegionManifest],
    clock: Callable[[], float] = time.time,
) -> int:
    """Record `manifests` in a new version of the base table, and return that version: that of
    `base`, the newest, where they are recorded there.

    Raises RetryError when other commits kept coming in between.
    """
    recording = Recording(context.store, base, manifests, clock)
    if recording.is_in(base.details):
        return base.version
    version = change_details(context, "snapshot_regions", recording)
    _log.info("recorded %d regions of %s in version %d", len(manifests), context.uri, version)
    return version


def note_last_seen(store: ObjectStore, manifest: RegionManifest) -> RegionManifest:
    """Write the position of the last WAL entry with rows into a region's manifest.

    Best effort: gives the manifest as it is when somebody else changes it now. A torn entry must
    never be noted, as everything up to the hint counts as complete; rows were only ever written
    above entries that are complete or recorded as skipped.
    """
    last_seen = max(manifest.replay_after_wal_entry_position, manifest.wal_entry_position_last_seen)
    wal = Wal(store, manifest.region_id)
    with suppress(MemWalError):
        if not wal.exists(last_seen + 1):
            return manifest
        for position in reversed(
            [position for position in wal.positions() if position > last_seen]
        ):
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
