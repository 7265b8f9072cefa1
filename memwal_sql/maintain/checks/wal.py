"""The write-ahead log: no hole above what is flushed, and every entry makes sense."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise

from memwal_sql.errors import (
    CorruptFileError,
    MemWalError,
    RepairError,
    TornEntryError,
    UnknownFormatError,
)
from memwal_sql.maintain.checks.contained import contained
from memwal_sql.maintain.checks.findings import Finding, Severity, lacking_in
from memwal_sql.maintain.checks.state import CheckedRegion, CheckState
from memwal_sql.state.replay import Replay, memtables_of
from memwal_sql.storage import paths
from memwal_sql.storage.wal.log import Wal, WalEntry

_FROM_A_COPY = "restore the file from a copy; without one, its rows are lost"
_WITH_ITS_WRITER = "install a newer version, or flush with the program that wrote the entry"
_AGAIN = "check again when the store answers"
_NAME_BACK = "give the fields the names that they had, flush with table.writer(), rename them again"


def check_wal(state: CheckState) -> Iterator[Finding]:
    """Protocol rules 5, 6 and 9, and the two positions that manifests hold."""
    for region in state.regions:
        wal = Wal(state.store, region.region_id, state.base.stored)
        yield from _watermarks(region, wal)
        look = partial(_entries, state, region, wal)
        yield from contained(look, paths.wal_folder(region.region_id))


def _watermarks(region: CheckedRegion, wal: Wal) -> Iterator[Finding]:
    manifest = region.manifest
    flushed, seen = manifest.replay_after_wal_entry_position, manifest.wal_entry_position_last_seen
    if seen > flushed and seen not in region.files.wal:
        yield Finding(
            Severity.ERROR,
            f"the WAL entry at position {seen} was seen once, and is missing",
            wal.path(seen),
            _FROM_A_COPY,
        )
    if flushed and flushed not in region.files.wal:
        yield Finding(
            Severity.WARNING,
            f"the last flushed WAL entry, at position {flushed}, is missing; native code looks for "
            "it when it opens the region",
            wal.path(flushed),
            "none needed for this package",
        )


def _entries(state: CheckState, region: CheckedRegion, wal: Wal) -> Iterator[Finding]:
    manifest, info = region.manifest, state.base.info
    flushed = manifest.replay_after_wal_entry_position
    positions = sorted(p for p in region.files.wal if p > flushed)
    last = max(region.files.wal, default=0)
    for before, after in pairwise([flushed, *positions]):
        if after != before + 1:
            yield Finding(
                Severity.ERROR,
                f"the WAL entries at {lacking_in(before + 1, after, ())} are missing, and later "
                "ones are there",
                wal.path(before + 1),
                _FROM_A_COPY,
            )
    # No file, as a folder, is not listed, and ends what others read.
    yield from contained(partial(_unlisted, wal, last + 1), wal.path(last + 1))
    # Once one is missing, the rest would be held against entries that are not there.
    whole = len(positions) == last - flushed or not positions
    replay = Replay(wal, manifest.current_generation, memtables_of(info, region.name))
    for position in positions:
        entry: WalEntry | TornEntryError | None
        try:
            entry = wal.read(position)
        except TornEntryError as error:
            if position == last:
                yield Finding(
                    Severity.INFO,
                    f"the newest WAL entry is torn, so nobody was told that it is durable: {error}",
                    wal.path(position),
                    "none needed: the next writer of the region records it as skipped",
                )
                return
            entry = error
        except MemWalError as error:
            yield Finding(Severity.ERROR, str(error), wal.path(position), _remedy(error))
            whole = False
            continue
        if entry is None:
            return  # flushed and collected since it was listed
        if isinstance(entry, WalEntry) and entry.writer_epoch > manifest.writer_epoch:
            yield Finding(
                Severity.ERROR,
                f"the WAL entry is of writer epoch {entry.writer_epoch}, and the region's manifest "
                f"only of {manifest.writer_epoch}",
                wal.path(position),
                "the manifest is an older copy: restore the newest one",
            )
        if not whole:
            continue
        try:
            replay.add(position, entry)
        except MemWalError as error:  # it names the file, which may be one before
            where = paths.wal_folder(region.region_id)
            yield Finding(Severity.ERROR, str(error), where, _remedy(error))
            whole = False


def _unlisted(wal: Wal, position: int) -> Iterator[Finding]:
    with suppress(TornEntryError):  # written meanwhile
        wal.read(position)
    yield from ()


def _remedy(error: MemWalError) -> str:
    if isinstance(error, CorruptFileError):
        return _FROM_A_COPY
    if not isinstance(error, RepairError):
        return _AGAIN
    return _WITH_ITS_WRITER if isinstance(error, UnknownFormatError) else _NAME_BACK
