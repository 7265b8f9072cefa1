"""What may not be collected: files that a retained base version or a checkpoint reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from memwal_sql.storage.base_versions import BaseVersion, recorded_manifests
from memwal_sql.storage.object_store import ObjectStore
from memwal_sql.storage.region_manifest import RegionManifest

GenerationName = tuple[UUID, str]


@dataclass(frozen=True, slots=True)
class Holds:
    """Generations by region and folder name, and WAL positions as (first, last) by region."""

    generations: frozenset[GenerationName] = frozenset()
    wal: Mapping[UUID, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    def generation(self, region_id: UUID, name: str) -> bool:
        """Whether a generation's folder is held."""
        return (region_id, name) in self.generations

    def wal_entry(self, region_id: UUID, position: int) -> bool:
        """Whether a WAL entry is held."""
        return any(first <= position <= last for first, last in self.wal.get(region_id, ()))

    def __or__(self, other: Holds) -> Holds:
        wal = dict(self.wal)
        for region, ranges in other.wal.items():
            wal[region] = (*wal.get(region, ()), *ranges)
        return Holds(self.generations | other.generations, wal)


def held_by_versions(store: ObjectStore, versions: Iterable[BaseVersion]) -> Holds:
    """What the recorded region states of base versions need (protocol rule 18).

    Of a version without a record only the base table is read, so it holds nothing.
    """
    decoded: dict[object, list[RegionManifest]] = {}
    held: set[GenerationName] = set()
    for version in versions:
        details = version.details
        if details is None:
            continue
        # Most versions have the record of the version before.
        key = details.inline_snapshots or details.index_uuid
        if key not in decoded:
            decoded[key] = recorded_manifests(store, details) or []
        held.update(
            (manifest.region_id, one.path)
            for manifest in decoded[key]
            for one in manifest.flushed_generations
            if one.generation > details.merged_generations.get(manifest.region_id, 0)
        )
    return Holds(frozenset(held))
