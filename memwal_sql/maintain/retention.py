"""Retained files: those that a retained base version or a checkpoint reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from exec_nodes.resident.store import Key, Scope
from memwal_sql.storage.base.memwal_index import IndexDetails
from memwal_sql.storage.base.versions import BaseVersion, recorded_manifests
from memwal_sql.storage.objects.protocol import ObjectStore

GenerationName = tuple[UUID, str]
_BYTES = 128


@dataclass(frozen=True, slots=True)
class Holds:
    """Generations by region and folder name, and WAL positions as (first, last) by region."""

    generations: frozenset[GenerationName] = frozenset()
    wal: Mapping[UUID, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    def generation(self, region_id: UUID, name: str) -> bool:
        return (region_id, name) in self.generations

    def wal_entry(self, region_id: UUID, position: int) -> bool:
        return any(first <= position <= last for first, last in self.wal.get(region_id, ()))

    def __or__(self, other: Holds) -> Holds:
        wal = dict(self.wal)
        for region, ranges in other.wal.items():
            wal[region] = (*wal.get(region, ()), *ranges)
        return Holds(self.generations | other.generations, wal)


def retained_by_versions(
    store: ObjectStore, versions: Iterable[BaseVersion], scope: Scope
) -> Holds:
    """The files of recorded region states of base versions (protocol rule 18). A version without a
    record reads only the base table, so it retains nothing.
    """
    generations: set[GenerationName] = set()
    present = set[Key]()
    for version in versions:
        details = version.details
        if details is None:
            continue
        # An index entry never changes, and most versions have the one of the version before.
        key = scope.key("recorded generations", details.index_uuid)
        present.add(key)
        recorded = scope.store.compute(
            key,
            partial(_recorded, store, details),
            lambda retained: _BYTES * (1 + len(retained)),
        )
        generations.update(
            (region_id, name)
            for region_id, name, generation in recorded
            if generation > details.merged_generations.get(region_id, 0)
        )
    scope.store.evict_where(
        "recorded generations", lambda key: scope.is_own(key) and key not in present
    )
    return Holds(frozenset(generations))


def _recorded(store: ObjectStore, details: IndexDetails) -> tuple[tuple[UUID, str, int], ...]:
    return tuple(
        (manifest.region_id, generation.path, generation.generation)
        for manifest in recorded_manifests(store, details) or ()
        for generation in manifest.flushed_generations
    )
