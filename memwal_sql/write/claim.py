"""Claiming a region: from then on its earlier writers can write nothing (protocol rule 4).

Specification 1, "Writer Fencing". The order makes it safe without clocks:

1. Replay the WAL entries that there are. Where that fails nothing is fenced: the writer that has
   the region may hold these rows in memory, and flush them.
2. Commit the next writer epoch.
3. Put a fence into the WAL. Every older writer has its next position at or below it, so its next
   append finds the position taken.
4. Read the manifest again, to make sure that the epoch is still ours.
5. Replay what came meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from memwal_sql.errors import (
    CorruptFileError,
    FencedError,
    RegionSealedError,
    TornEntryError,
)
from memwal_sql.life_log import life_log
from memwal_sql.state.replay import MakeMemTable, Replay, ReplayedMemTable, replay
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.region.manifest import RegionManifest, RegionStatus
from memwal_sql.storage.region.progress import check_progress
from memwal_sql.storage.region.versions import ManifestChanges, RegionManifests
from memwal_sql.storage.wal.log import Wal, encode_fence
from planner.regions.values import RegionValue

_log = life_log(__name__)


@dataclass(frozen=True, slots=True)
class RegionClaim:
    """The right to write a region, until somebody commits a higher epoch.

    `manifest` is the region's manifest as of the claim.
    """

    region_id: UUID
    epoch: int
    manifest: RegionManifest


@dataclass(frozen=True, slots=True)
class Claim:
    """The result of a claim: MemTables ascending by generation, and the next free WAL position."""

    claim: RegionClaim
    memtables: tuple[ReplayedMemTable, ...]
    next_position: int


def claim(
    manifests: RegionManifests,
    wal: Wal,
    make: MakeMemTable,
    check: Callable[[], None],
    values: Mapping[str, RegionValue] | None = None,
    newest: RegionManifest | None = None,
    merged: int = 0,
) -> Claim:
    """Become the region's writer.

    `make` gives an empty MemTable of a generation. `values` are the region's, to be written down
    where its manifest leaves them out. `newest` is a manifest that was just read or created: the
    commit of the epoch finds out whether it is the newest still. `check` raises where this package
    must not write the table any more, which is certain only once the epoch is committed: who has
    raised the table's version claims every region after that, and fences whoever was earlier.
    `merged` is up to which generation a base version says that it has the region's.

    Raises FencedError when another writer claims the region meanwhile, RegionSealedError when it
    takes no writers, CorruptFileError when its WAL is damaged and TableReplacedError where more is
    merged than it has, which change nothing. A claim that
    fails at any other point leaves nothing but a higher epoch and a fence.
    """
    log = _read_log(manifests, wal, newest or manifests.latest(), make)
    own = _commit_epoch(manifests, log.manifest, values, merged)
    epoch = own.writer_epoch
    if own.version > log.manifest.version + 1:  # others have flushed, and perhaps collected
        log = _read_log(manifests, wal, own, make)
        _check_epoch(log.manifest, epoch)
    fence = _put_fence(wal, own.region_id, epoch, log.end)
    # Without this look two claimers whose fences both landed would both think they had won.
    newer, _, above = _run_probes(
        wal.remote, lambda: manifests.newer(own), check, lambda: wal.read(fence + 1)
    )
    manifest: RegionManifest = newer or own
    _check_epoch(manifest, epoch)
    replayed = log.replayed
    if log.torn:  # they may have been under way
        first = manifest.replay_after_wal_entry_position + 1
        replayed = replay(wal, first, fence, manifest.current_generation, make)
    else:
        replayed.read(log.end, fence)
    if torn := replayed.torn(manifest.wal_entry_position_last_seen):
        fence = _put_fence(wal, own.region_id, epoch, fence + 1, torn)
        above = wal.read(fence + 1)
    # The first free position is the end of the log, unless an entry was lost there.
    if above is not None and not above.is_fence and above.writer_epoch < epoch:
        raise CorruptFileError(
            f"{wal.path(fence)} was missing, but {wal.path(fence + 1)} was written after it by "
            f"epoch {above.writer_epoch}"
        )
    return _claimed(manifest, replayed.memtables, fence)


def claim_new(
    manifests: RegionManifests, wal: Wal, check: Callable[[], None], creation: RegionManifest
) -> Claim | RegionManifest:
    """Create a region whose writer is its creator, by the epoch of its first manifest. If the
    region has any other file, returns its newest manifest, for a `claim`. Raises what `claim`
    raises.
    """
    first = manifests.put_first(replace(creation, writer_epoch=1))
    if first is None:
        return manifests.latest()
    fence = 0
    # The fence goes to this position only: the manifest's number may be free because it was
    # collected, and a fence further up would block a writer whose epoch is not lower.
    data = encode_fence(writer_epoch=first.writer_epoch)
    with suppress(TornEntryError):
        fence = 1 if wal.append(1, data).existing is None else 0
    # Asked after the fence, as in a claim: this finds a higher epoch that was committed by now.
    versions, _, taken = _run_probes(wal.remote, manifests.versions, check, wal.positions)
    if versions == [1] and taken == [fence]:
        return _claimed(first, (), fence)
    newest = manifests.newest_of(first, versions)
    _check_epoch(newest, first.writer_epoch)
    return newest


def _claimed(manifest: RegionManifest, memtables: Sequence[ReplayedMemTable], fence: int) -> Claim:
    region, epoch = manifest.region_id, manifest.writer_epoch
    rows = sum(replayed.memtable.rows for replayed in memtables)
    _log.info("claimed region %s: epoch %d, %d rows replayed", region, epoch, rows)
    return Claim(RegionClaim(region, epoch, manifest), tuple(memtables), fence + 1)


def fenced(region_id: UUID, epoch: int, by: int) -> FencedError:
    """The error for a writer of `epoch` that epoch `by` has taken over from."""
    _log.info("fenced the writer of region %s, epoch %d: epoch %d took over", region_id, epoch, by)
    return FencedError(
        f"region {region_id}: the writer of epoch {by} took over from this one of epoch {epoch}; "
        "open a new writer to take the region back"
    )


@dataclass(frozen=True, slots=True)
class _Log:
    """The WAL above `manifest`, replayed up to `end`, the first position that is not taken; `torn`
    are positions that were cut off."""

    manifest: RegionManifest
    replayed: Replay
    end: int
    torn: tuple[int, ...]


def _read_log(
    manifests: RegionManifests, wal: Wal, manifest: RegionManifest, make: MakeMemTable
) -> _Log:
    """The WAL above `manifest`, or above a newer one. Raises CorruptFileError where it is damaged
    and no newer manifest has flushed what is."""
    while True:
        first = manifest.replay_after_wal_entry_position + 1
        try:
            end = _first_free(wal, manifest)
            replayed = replay(wal, first, end, manifest.current_generation, make)
            torn = replayed.torn(manifest.wal_entry_position_last_seen)
        except CorruptFileError:
            newer = manifests.newer(manifest)
            if newer is None:
                raise
            manifest = newer
        else:
            return _Log(manifest, replayed, end, torn)


def _commit_epoch(
    manifests: RegionManifests,
    latest: RegionManifest,
    values: Mapping[str, RegionValue] | None,
    merged: int,
) -> RegionManifest:
    changes: ManifestChanges = {}
    if values and latest.region_values is None:
        changes["region_values"] = values

    def next_epoch(manifest: RegionManifest) -> ManifestChanges:
        if manifest.status is RegionStatus.SEALED:
            raise RegionSealedError(
                f"region {manifest.region_id} is sealed, as it is about to be dropped: "
                "write to another region"
            )
        check_progress(manifests, manifest, merged)
        return {**changes, "writer_epoch": manifest.writer_epoch + 1}

    return manifests.change(latest, next_epoch)


def _run_probes(remote: bool, *probes: Callable[[], Any]) -> list[Any]:
    return map_remote(remote, lambda probe: probe(), probes)


def _check_epoch(manifest: RegionManifest, epoch: int) -> None:
    if manifest.writer_epoch != epoch:
        raise fenced(manifest.region_id, epoch, manifest.writer_epoch)


def _first_free(wal: Wal, manifest: RegionManifest) -> int:
    """The first position above all that the manifest knows of and that is not taken. Raises
    CorruptFileError where one above it is taken."""
    free = 1 + max(manifest.replay_after_wal_entry_position, manifest.wal_entry_position_last_seen)
    taken = frozenset(wal.positions())
    last = max(taken, default=0)
    # A listing of a folder may lack what was written while it was taken.
    while free in taken or (free < last and wal.exists(free)):
        free += 1
    if free < last:
        raise wal.missing(free)
    return free


def _put_fence(
    wal: Wal, region_id: UUID, epoch: int, position: int, skipped: tuple[int, ...] = ()
) -> int:
    """Put a fence at the first free position from `position` on, and return where it landed."""
    data = encode_fence(writer_epoch=epoch, skipped=skipped)
    while True:
        try:
            taken_by = wal.append(position, data).existing
        except TornEntryError:
            taken_by = None
        else:
            if taken_by is None:
                return position
        if taken_by is not None and taken_by.writer_epoch > epoch:
            raise fenced(region_id, epoch, taken_by.writer_epoch)
        position += 1
