"""Logs with rows that are not flushed, and how long nobody has seen to them.

A writer says in each entry within how many seconds it flushes it (`WriterOptions.memtable_age_s`).
Each flush and each claim is a commit of the region's manifest. So where the rows of a log are much
older than that, and the manifest has not changed since, its writer has died, or is stuck. One that
may keep rows for ever, and native code, say nothing: nobody can tell them from a dead one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from uuid import UUID

from memwal_sql.errors import MemWalError, TornEntryError
from memwal_sql.life_log import life_log
from memwal_sql.state.context import TableContext
from memwal_sql.storage import paths
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.objects.protocol import ObjectMeta, ObjectStore
from memwal_sql.storage.objects.store_time import store_time
from memwal_sql.storage.region.manifest import RegionManifest, RegionStatus
from memwal_sql.storage.wal.log import WalEntry

_log = life_log(__name__)


@dataclass(frozen=True, slots=True)
class UnflushedLog:
    """A log with rows that are not flushed.

    Attributes:
        region_id: the region.
        epoch: of its writer.
        replay_after: the position of the last entry that is flushed.
        flushed_within: seconds within which a writer that lives flushes an entry; infinite where
            it has not said.
        age: seconds since the oldest of these entries was written and the manifest was committed,
            whichever came last, by the store's clock; 0 where the store does not say, or where
            ages were not asked for.
        quiet: the same since the newest entry.
        end: the position of the newest entry with rows.
        takes_turns: its writer, if it lives, claims the region again where another one took it.
        is_closed: this process had claimed the region last, and has no writer for it any more.
    """

    region_id: UUID
    epoch: int
    replay_after: int
    flushed_within: float
    age: float
    quiet: float = 0.0
    end: int = 0
    takes_turns: bool = False
    is_closed: bool = False

    @property
    def state(self) -> tuple[UUID, int, int]:
        """A state that changes when somebody claims the region or flushes any of it."""
        return self.region_id, self.epoch, self.replay_after


Fences = dict[UUID, tuple[int, float]]
"""By region the position of a fence that was read, and when it was written: no object that has both
is another entry."""


def newest_rows(context: TableContext, manifest: RegionManifest, fences: Fences) -> WalEntry | None:
    """The newest entry with rows that are not flushed; None where there is none. Rows of a
    transaction that is undecided count: who claims the region decides. `fences` are not read again;
    one that is read is added.

    Raises CorruptFileError for one that is damaged, or the record of its transaction.
    """
    wal = context.wal(manifest.region_id)
    flushed, written = manifest.replay_after_wal_entry_position, wal.modified()
    for position in sorted((position for position in written if position > flushed), reverse=True):
        modified = written[position]
        if fences.get(manifest.region_id) == (position, modified):
            continue
        try:
            entry = wal.read(position)
        except TornEntryError:  # it may be under way
            continue
        if entry is None:
            continue
        if entry.is_fence and modified is not None:
            fences[manifest.region_id] = position, modified
        if not entry.is_fence and wal.verdict(entry) is not False:
            return entry
    return None


def unflushed_logs(
    context: TableContext,
    manifests: Sequence[RegionManifest],
    fences: Fences,
    *,
    with_ages: bool,
    is_closed: Callable[[RegionManifest], bool] = lambda _: False,
) -> list[UnflushedLog]:
    """The logs of the regions of these manifests that have rows. Ages take an object that is put,
    and two listings a region."""
    store = context.store
    open_ones = [manifest for manifest in manifests if manifest.status is not RegionStatus.SEALED]
    newest = map_remote(
        store.remote, lambda manifest: _newest_rows(context, manifest, fences), open_ones
    )
    logs = [
        (manifest, entry)
        for manifest, entry in zip(open_ones, newest, strict=True)
        if entry is not None
    ]
    if not logs:
        return []
    now = store_time(store) if with_ages else None
    found = []
    for manifest, entry in logs:
        age, quiet = (0.0, 0.0) if now is None else _ages(store, manifest, now)
        promised = entry.flushed_within
        log = UnflushedLog(
            manifest.region_id,
            manifest.writer_epoch,
            manifest.replay_after_wal_entry_position,
            inf if promised is None else promised,
            age,
            quiet,
            entry.position,
            takes_turns=promised is not None and not entry.keeps_region,
            is_closed=is_closed(manifest),
        )
        found.append(log)
    return found


def _newest_rows(
    context: TableContext, manifest: RegionManifest, fences: Fences
) -> WalEntry | None:
    try:
        return newest_rows(context, manifest, fences)
    except MemWalError as error:  # other regions are flushed all the same
        region, kind = manifest.region_id, type(error).__name__
        _log.warning("%s: the log of region %s is not flushed: %s", context.uri, region, kind)
        return None


def _ages(store: ObjectStore, manifest: RegionManifest, now: float) -> tuple[float, float]:
    """The age and the quiet of a log."""
    region, flushed = manifest.region_id, manifest.replay_after_wal_entry_position
    entries = _modified(store.list(paths.wal_folder(region)), paths.WAL_SUFFIX)
    versions = _modified(store.list(paths.manifest_folder(region)), paths.MANIFEST_SUFFIX)
    unflushed = [position for position in entries if position > flushed] or [0]
    version = versions.get(manifest.version)

    def since(position: int) -> float:
        written = entries.get(position)
        if written is None or version is None:
            return 0.0
        return max(0.0, now - max(written, version))

    return since(min(unflushed)), since(max(unflushed))


def _modified(listed: Iterable[ObjectMeta], suffix: str) -> dict[int, float | None]:
    """When each numbered object was written."""
    numbered = ((paths.numbered(meta.path, suffix), meta.modified) for meta in listed)
    return {number: modified for number, modified in numbered if number is not None}
