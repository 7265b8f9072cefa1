"""The rules of garbage: pure decisions over a survey (specification 2, "Garbage Collector";
protocol rules 4, 8, 18 and 21).

Nothing here depends on when it is carried out: what is garbage once is garbage for ever. Only the
ages that are asked for are a matter of clocks, and they save readers under way a second try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from memwal_sql.maintain.gc.listing import Folder, RegionFiles
from memwal_sql.maintain.retention import Holds
from memwal_sql.storage.objects.protocol import ObjectMeta
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.wal.entry import LARGEST_FENCE_BYTES

KEPT_MANIFESTS = 10

IsFence = Callable[[int], bool]


class Kind(StrEnum):
    """Kinds of garbage, in the order in which they are reported."""

    BASE_VERSION = "base version"
    CHECKPOINT = "checkpoint"
    GENERATION = "generation"
    ORPHAN = "orphan"
    WAL_ENTRY = "wal entry"
    MANIFEST = "manifest"
    REGION_SNAPSHOT = "region snapshot"
    STAGED = "staged rows"
    TRANSACTION = "transaction"
    TEMPORARY = "temporary file"


@dataclass(frozen=True, slots=True)
class Garbage:
    """One thing that nobody needs.

    `path` is a file or a generation's folder, relative to the table's root, and `files` are the
    objects to delete. `number` is the generation, WAL position or version. `bytes` is None where
    Lance deletes.
    """

    kind: Kind
    region: UUID | None
    path: str
    bytes: int | None
    reason: str
    files: tuple[str, ...] = ()
    number: int = 0


@dataclass(frozen=True, slots=True)
class RegionState:
    """What decides over one region's files.

    `manifest` is one that was read after the files were listed. Generations up to `through` are in
    the base table and its maintained indexes for long enough. WAL entries up to `known_fences`
    that are small enough to be fences were found to be fences before. Files written after
    `cutoff` (seconds since 1970) stay, and so does what the region's state at the cutoff needs:
    `flushed` is the WAL position up to which it had been flushed by then.
    """

    files: RegionFiles
    manifest: RegionManifest
    through: int
    known_fences: int
    cutoff: float
    flushed: int


def region_garbage(state: RegionState, holds: Holds, is_fence: IsFence) -> Iterator[Garbage]:
    """The garbage of one region. `is_fence` reads the WAL entry at a position."""
    yield from _generations(state, holds)
    yield from _wal_entries(state, holds, is_fence)
    yield from _manifests(state)


def _generations(state: RegionState, holds: Holds) -> Iterator[Garbage]:
    listed = {generation.path for generation in state.manifest.flushed_generations}
    for name, folder in sorted(
        state.files.generations.items(), key=lambda item: item[1].generation
    ):
        if holds.generation(state.files.region_id, name):
            continue
        number = folder.generation
        if name in listed:
            if number <= state.through:
                yield _folder(state, name, folder, Kind.GENERATION, "merged into the base table")
        # A generation that is not current any more can't be committed any more (protocol rule 7).
        elif number < state.manifest.current_generation and _is_old(state, *folder.files):
            yield _folder(state, name, folder, Kind.ORPHAN, "in no manifest: a flush that failed")


def _folder(state: RegionState, name: str, folder: Folder, kind: Kind, reason: str) -> Garbage:
    path = folder.files[0].path
    return Garbage(
        kind,
        state.files.region_id,
        path[: path.index(name) + len(name)],
        folder.bytes,
        reason,
        tuple(meta.path for meta in folder.files),
        folder.generation,
    )


def _wal_entries(state: RegionState, holds: Holds, is_fence: IsFence) -> Iterator[Garbage]:
    """Flushed entries. Fences stay: they stop fenced writers, however long those sleep; the entries
    at two positions stay, as native code looks for them."""
    manifest = state.manifest
    flushed = manifest.replay_after_wal_entry_position
    probed = (flushed, manifest.wal_entry_position_last_seen)
    for position, meta in sorted(state.files.wal.items()):
        if position > min(flushed, state.flushed):
            break
        if position in probed or not _is_old(state, meta):
            continue
        if holds.wal_entry(state.files.region_id, position):
            continue
        small = meta.size <= LARGEST_FENCE_BYTES
        if small and (position <= state.known_fences or is_fence(position)):
            continue
        yield _file(state, meta, Kind.WAL_ENTRY, "flushed into a generation", position)


def _manifests(state: RegionState) -> Iterator[Garbage]:
    established = established_manifest(state.files, state.cutoff) or 0
    for version in sorted(state.files.manifests)[:-KEPT_MANIFESTS]:
        if version >= established:
            break
        meta = state.files.manifests[version]
        reason = f"not among the newest {KEPT_MANIFESTS} versions"
        yield _file(state, meta, Kind.MANIFEST, reason, version)


def _file(state: RegionState, meta: ObjectMeta, kind: Kind, reason: str, number: int) -> Garbage:
    region = state.files.region_id
    return Garbage(kind, region, meta.path, meta.size, reason, (meta.path,), number)


def established_manifest(files: RegionFiles, cutoff: float) -> int | None:
    """The region's newest manifest version at a time; None where the region was made later."""
    old = (version for version, meta in files.manifests.items() if _was_there(meta, cutoff))
    return max(old, default=None)


def _is_old(state: RegionState, *files: ObjectMeta) -> bool:
    return all(_was_there(meta, state.cutoff) for meta in files)


def _was_there(meta: ObjectMeta, cutoff: float) -> bool:
    return meta.modified is None or meta.modified <= cutoff
