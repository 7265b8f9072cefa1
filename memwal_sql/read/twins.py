"""Regions with the same values (protocol rule 11).

Two that are alive have rows of the same keys, and nothing says which of them are newer. They come
about where a program did not know of the other's region, as LanceDB and version 0.1 of this package
do. Readers, writers and mergers refuse them unless one is sealed and has no rows of its own left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from memwal_sql.errors import RepairError
from memwal_sql.read.region import RegionReader
from memwal_sql.state.base_table import BaseTable
from memwal_sql.storage.region.manifest import RegionManifest, RegionStatus
from planner.regions.values import RegionValue

ValuesKey = tuple[int, tuple[RegionValue, ...]]
"""A spec's id, and region values in the order of its fields."""


def is_emptied(region: RegionReader, base: BaseTable) -> bool:
    """Whether a region is sealed, and all that it ever had is in the base table."""
    manifest = region.refresh()
    if manifest.status is not RegionStatus.SEALED or _is_unmerged(manifest, base):
        return False
    return not any(memtable.rows for memtable in region.unflushed().memtables)


def check_recorded(
    uri: str, pairs: Iterable[tuple[RegionReader, RegionManifest]], base: BaseTable
) -> None:
    """Raise RepairError for two recorded regions with the same values that both have rows above
    the base table."""
    by_values: dict[ValuesKey, RegionReader] = {}
    for region, manifest in pairs:
        if region.values is None or not _is_unmerged(manifest, base):
            continue
        other = by_values.setdefault((region.spec_id, tuple(region.values.values())), region)
        if other is not region:
            raise twins_error(uri, region.values, [other.region_id, region.region_id])


def twins_error(uri: str, values: object, regions: Sequence[UUID]) -> RepairError:
    """The error for regions that have the same values."""
    names = " and ".join(sorted(map(str, regions)))
    return RepairError(
        f"{uri} has two regions with the values {values}: {names}. Of a key that is in both, "
        "nothing says which row is newer. Write the rows of each region into a new table, the "
        "newer region last: docs/lancedb.md shows how"
    )


def _is_unmerged(manifest: RegionManifest, base: BaseTable) -> bool:
    merged = base.details.merged_generations.get(manifest.region_id, 0)
    return manifest.current_generation - 1 > merged
