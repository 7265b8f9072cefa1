"""Regions with the same values (protocol rule 11).

Two live ones have rows of the same keys, and nothing says which rows are newer. They come about if
a program did not know the other's region, as it derives other ids. Readers, writers and mergers
refuse them unless one is sealed and has no rows of its own left.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from memwal_sql.errors import RepairError
from memwal_sql.read.region import RegionReader
from memwal_sql.state.base_table import BaseTable
from memwal_sql.storage.region.manifest import RegionManifest, RegionStatus
from planner.regions.values import RegionValue

ValuesKey = tuple[int, tuple[RegionValue, ...]]
"""A spec's id, and region values in the order of its fields."""


def is_emptied(region: RegionReader, base: BaseTable) -> bool:
    """Whether a region is sealed, and all of its rows are in the base table."""
    manifest = region.refresh()
    if manifest.status is not RegionStatus.SEALED or is_unmerged(manifest, base):
        return False
    return not any(memtable.rows for memtable in region.unflushed().memtables)


def twins_error(uri: str, values: object, regions: Sequence[UUID]) -> RepairError:
    """The error for regions with the same values."""
    names = " and ".join(sorted(map(str, regions)))
    return RepairError(
        f"{uri} has two regions with the values {values}: {names}. Of a key that is in both, "
        "nothing says which row is newer. Write the rows of each region into a new table, the "
        "newer region last: docs/lancedb.md shows how"
    )


def is_unmerged(manifest: RegionManifest, base: BaseTable) -> bool:
    """Whether a region has generations above the base table."""
    merged = base.details.merged_generations.get(manifest.region_id, 0)
    return manifest.current_generation - 1 > merged
