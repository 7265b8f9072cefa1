"""Compares a base table's merge progress with a region's own generations."""

from __future__ import annotations

from uuid import UUID

from memwal_sql.errors import TableReplacedError
from memwal_sql.storage import paths
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.versions import RegionManifests


def check_progress(manifests: RegionManifests, manifest: RegionManifest, merged: int) -> None:
    """Raise TableReplacedError where a base version has merged more generations than the region
    has: the next ones would count as merged before they are, and nobody would read them.

    Whoever merged them had a newer manifest than somebody may have who has read that base version
    since: `manifest` is read again before it is judged by.
    """
    if merged < manifest.current_generation:
        return
    newest = manifests.newer(manifest) or manifest
    if merged >= newest.current_generation:
        raise beyond(manifest.region_id, merged, newest.current_generation)


def beyond(region_id: UUID, merged: int, current: int) -> TableReplacedError:
    """The error for a region that comes to its generation `current` next, while `merged` is said
    to be merged."""
    return TableReplacedError(
        f"the base table says that it has generation {merged} of region {region_id}, whose next "
        f"one is only {current}: rows that were written now would be lost. "
        f"{paths.region_folder(region_id)} is an older copy, or the base table is damaged: put "
        "the newest copy of the folder back, or restore the base table to the version that "
        "belongs to it; see table.check()"
    )
