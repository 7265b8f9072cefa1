"""Claiming a region: from then on its earlier writers can't write (protocol rule 4).

Specification 1, "Writer Fencing". The order makes it safe without clocks:

1. Replay the existing WAL entries. If that fails nothing is fenced: the region's writer may have
   these rows in memory, and flush them.
2. Commit the next writer epoch.
3. Put a fence into the WAL. The next position of every older writer is at or below it, so its next
   append finds the position taken.
4. Read the manifest again, to make sure that the epoch is still the highest.
5. Decide over intents that are undecided: before the fence another one could still land.
6. Replay the entries from the first of these on, and those that came meanwhile.
7. Sync the record of the last transaction. All else that was replayed is on the disk: the fence is
   in the same folder, and nobody writes behind an intent whose record is not synced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
from memwal_sql.state.replay import MakeMemTable, Replay, ReplayedMemTable
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.records.intent import Note
from memwal_sql.storage.region.manifest import RegionManifest, RegionStatus
from memwal_sql.storage.region.progress import check_progress
from memwal_sql.storage.region.versions import ManifestChanges, RegionManifests
from memwal_sql.storage.wal.log import Wal, encode_fence
from planner.regions.values import RegionValue

_log = life_log(__name__)


class ClaimedFirstError(FencedError):
    """Another writer has claimed the region in this turn; nothing was changed."""


@dataclass(frozen=True, slots=True)
class RegionClaim:
    """The right to write a region, until another writer commits a higher epoch.

    `manifest` is the region's manifest as of the claim.
    """

    region_id: UUID
    epoch: int
    manifest: RegionManifest


@dataclass(frozen=True, slots=True)
class ClaimedRegion:
    """A region after its claim: the MemTables of the replay, ascending by generation, the next free
    WAL position, and what its entry says of intents before it."""

    claim: RegionClaim
    memtables: tuple[ReplayedMemTable, ...]
    next_position: int
    notes: tuple[Note, ...] = ()


def claim(
    manifests: RegionManifests,
    wal: Wal,
    make: MakeMemTable,
    check: Callable[[], None],
    values: Mapping[str, RegionValue] | None = None,
    newest: RegionManifest | None = None,
    merged: int = 0,
    log: ReplayedLog | None = None,
    check_columns: Callable[[], None] = lambda: None,
    seen_epoch: int = -1,
    most_epoch: int | None = None,
) -> ClaimedRegion:
    """Become the region's writer.

    `make` makes an empty MemTable for a generation. `values` are the region's values, written down
    if its manifest leaves them out. `newest` is a manifest that was just read or created: the
    commit of the epoch finds out whether it is still the newest. `check` raises if this package
    must not write the table any more, which is certain only once the epoch is committed: a program
    that has raised the table's version claims every region after that, and fences earlier writers.
    `merged` is the last generation of the region in a base version. `log` is the region's log as
    far as it was read before. `check_columns` raises if the table has other columns than those that
    `make` and `wal` know: rows that were replayed may have values in them, which a flush would
    lose, and merged rows too, which newer ones of these columns would replace. It was called
    before, when the region's epoch was `seen_epoch`, so that nobody has brought rows with other
    columns unless there was another claim since.

    Raises FencedError when another writer claims the region meanwhile, RegionSealedError when it
    takes no writers, CorruptFileError when its WAL is damaged and TableReplacedError when more of
    it is merged than exists; these change nothing. A claim that fails at any other point leaves
    only a higher epoch and a fence.
    """
    log = log or read_log(manifests, wal, newest or manifests.latest(), make)
    own = _commit_epoch(manifests, log.manifest, values, merged, most_epoch)
    epoch = own.writer_epoch
    if own.version > log.manifest.version + 1:  # others have flushed, and perhaps collected
        log = log.above(own) or read_log(manifests, wal, own, make)
        _check_epoch(log.manifest, epoch)
    fence = _put_fence(wal, own.region_id, epoch, log.end)
    # Without this check two claimers whose fences both landed would both think they had won.
    newer, _, above = _run_probes(
        wal.remote, lambda: manifests.newer(own), check, lambda: wal.read(fence + 1)
    )
    manifest: RegionManifest = newer or own
    _check_epoch(manifest, epoch)
    replayed = log.replayed
    if log.torn:  # their writer may have been writing them
        first = manifest.replay_after_wal_entry_position + 1
        replayed = Replay(wal, manifest.current_generation, make)
        replayed.settle(first, fence, epoch)
    else:
        replayed.settle(log.decided, fence, epoch)
    if torn := replayed.torn(manifest.wal_entry_position_last_seen):
        fence = _put_fence(wal, own.region_id, epoch, fence + 1, torn)
        above = wal.read(fence + 1)
    # The first free position is the end of the log, unless an entry was lost there.
    if above is not None and not above.is_fence and above.writer_epoch < epoch:
        raise CorruptFileError(
            f"{wal.path(fence)} was missing, but {wal.path(fence + 1)} was written after it by "
            f"epoch {above.writer_epoch}"
        )
    if replayed.last_intent is not None:
        wal.sync_record(replayed.last_intent)
    if epoch != seen_epoch + 1 or any(m.memtable.rows for m in replayed.memtables):
        check_columns()
    return _claimed(manifest, replayed.memtables, fence, replayed.notes.values())


def claim_new(
    manifests: RegionManifests,
    wal: Wal,
    check: Callable[[], None],
    creation: RegionManifest,
    check_columns: Callable[[], None] = lambda: None,
) -> ClaimedRegion | RegionManifest:
    """Create a region whose writer is its creator, by the epoch of its first manifest. If the
    region has any other file, returns its newest manifest, for a `claim`. Raises the errors of
    `claim`.
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
    # Checked after the fence, as in a claim: this finds a higher epoch committed by now.
    # Who has filled columns before the region was there has not found it, to claim it.
    versions, _, taken, _ = _run_probes(
        wal.remote, manifests.versions, check, wal.positions, check_columns
    )
    if versions == [1] and taken == [fence]:
        return _claimed(first, (), fence)
    newest = manifests.newest_of(first, versions)
    _check_epoch(newest, first.writer_epoch)
    return newest


def fence_out(manifests: RegionManifests, wal: Wal) -> None:
    """Keep the region's writer from appending for good, and decide its undecided intents. The
    caller has made sure that nobody claims the region after that.

    Nothing is replayed: only intents and fences may stand behind an intent that is undecided
    (protocol rule T6). Raises CorruptFileError where the log is damaged, and FencedError for a
    claim by native code meanwhile.
    """
    manifest = manifests.latest()
    free, _ = _first_free(wal, manifest)
    epoch = manifest.writer_epoch + 1
    fence = _put_fence(wal, manifest.region_id, epoch, free)
    for position in range(fence - 1, manifest.replay_after_wal_entry_position, -1):
        with suppress(TornEntryError):
            entry = wal.read(position)
            if entry is None or (entry.intent is None and not entry.is_fence):
                return
            wal.settle(entry, epoch)


def _claimed(
    manifest: RegionManifest,
    memtables: Sequence[ReplayedMemTable],
    fence: int,
    notes: Iterable[Note] = (),
) -> ClaimedRegion:
    region, epoch = manifest.region_id, manifest.writer_epoch
    rows = sum(replayed.memtable.rows for replayed in memtables)
    _log.info("claimed region %s: epoch %d, %d rows replayed", region, epoch, rows)
    won = RegionClaim(region, epoch, manifest)
    return ClaimedRegion(won, tuple(memtables), fence + 1, tuple(notes))


def fenced(region_id: UUID, epoch: int, by: int) -> FencedError:
    """The error for a writer of `epoch` that a writer of epoch `by` has fenced."""
    _log.info("fenced the writer of region %s, epoch %d: epoch %d took over", region_id, epoch, by)
    return FencedError(
        f"region {region_id}: the writer of epoch {by} took over from this one of epoch {epoch}; "
        "open a new writer to take the region back"
    )


@dataclass(slots=True)
class ReplayedLog:
    """The WAL of a region, replayed from the position behind `after` up to `decided`, the first
    intent that is undecided, or up to `end`, the first free position.

    Attributes:
        manifest: the newest manifest read, which flushes nothing behind `after`.
        torn: the positions of torn entries.
        modified: when the last entry was written, as `ObjectMeta` has it.
    """

    manifest: RegionManifest
    replayed: Replay
    after: int
    decided: int
    end: int
    torn: tuple[int, ...] = ()
    modified: float | None = None

    @property
    def epoch(self) -> int:
        """The highest epoch that has claimed the region."""
        return max(self.manifest.writer_epoch, self.replayed.epoch)

    def follow(self, wal: Wal) -> None:
        """Replay what was appended meanwhile. After an error the log must not be used again."""
        self.end = wal.first_free(self.end)
        self.decided = self.replayed.read(self.decided, self.end)

    def above(self, manifest: RegionManifest) -> ReplayedLog | None:
        """This log without what a newer manifest has flushed, which is forgotten; None if the log
        must be read again, as the flush ended within a MemTable, or an entry is torn."""
        replayed, current = self.replayed, manifest.current_generation
        after = replayed.forget_flushed(current) or self.after
        first = replayed.memtables[0].memtable.generation if replayed.memtables else current
        if after != manifest.replay_after_wal_entry_position or first != current:
            return None
        return None if replayed.torn(0) else replace(self, manifest=manifest, after=after, torn=())


def read_log(
    manifests: RegionManifests, wal: Wal, manifest: RegionManifest, make: MakeMemTable
) -> ReplayedLog:
    """The WAL above `manifest`, or above a newer one. Raises CorruptFileError if it is damaged and
    no newer manifest has flushed the damaged part."""
    while True:
        first = manifest.replay_after_wal_entry_position + 1
        try:
            end, modified = _first_free(wal, manifest)
            replayed = Replay(wal, manifest.current_generation, make)
            decided = replayed.read(first, end)
            torn = replayed.torn(manifest.wal_entry_position_last_seen)
        except CorruptFileError:
            newer = manifests.newer(manifest)
            if newer is None:
                raise
            manifest = newer
        else:
            return ReplayedLog(manifest, replayed, first - 1, decided, end, torn, modified)


def _commit_epoch(
    manifests: RegionManifests,
    latest: RegionManifest,
    values: Mapping[str, RegionValue] | None,
    merged: int,
    most_epoch: int | None,
) -> RegionManifest:
    changes: ManifestChanges = {}
    if values and latest.region_values is None:
        changes["region_values"] = values

    def next_epoch(manifest: RegionManifest) -> ManifestChanges:
        if most_epoch is not None and manifest.writer_epoch > most_epoch:
            raise ClaimedFirstError(
                f"region {manifest.region_id}: epoch {manifest.writer_epoch} claimed it first"
            )
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


def _first_free(wal: Wal, manifest: RegionManifest) -> tuple[int, float | None]:
    """The first free position above all that the manifest names, and when the last entry was
    written. Raises CorruptFileError if a position above it is taken."""
    free = 1 + max(manifest.replay_after_wal_entry_position, manifest.wal_entry_position_last_seen)
    taken = wal.modified()
    last = max(taken, default=0)
    # A listing may lack entries that were written during it.
    while free in taken or (free < last and wal.exists(free)):
        free += 1
    if free < last:
        raise wal.missing(free)
    return free, taken.get(last)


def _put_fence(
    wal: Wal, region_id: UUID, epoch: int, position: int, skipped: tuple[int, ...] = ()
) -> int:
    """Put a fence at the first free position from `position` on, and return its position."""
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
