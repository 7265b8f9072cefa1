"""The write-ahead log: no hole above what is flushed, and every entry makes sense."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise

import pyarrow as pa

from memwal_sql.errors import (
    CorruptFileError,
    MemWalError,
    RepairError,
    TornEntryError,
    UnknownFormatError,
)
from memwal_sql.maintain.checks.contained import contained
from memwal_sql.maintain.checks.findings import Finding, Severity, lacking_in
from memwal_sql.maintain.checks.region_keys import misplaced
from memwal_sql.maintain.checks.state import CheckedRegion, CheckState
from memwal_sql.state.entry_rows import entry_rows
from memwal_sql.state.memtable import memtable_schema
from memwal_sql.state.replay import Replay, memtables_of, read_listed
from memwal_sql.storage import paths
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.wal.log import Wal, WalEntry
from memwal_sql.storage.wal.order import Order
from memwal_sql.storage.wal.torn import is_skipped

_FLUSHED = (
    "restore the file from a copy; or, once no follower of the change feed needs it, flush and let "
    "table.collect_garbage() pass it: its rows are in a generation or in the base table"
)
_FROM_A_COPY = "restore the file from a copy; without one, its rows are lost"
_WITH_ITS_WRITER = "install a newer version, or flush with the program that wrote the entry"
_AGAIN = "check again when the store answers"
_NAME_BACK = "give the fields the names that they had, flush with table.writer(), rename them again"


def check_wal(state: CheckState) -> Iterator[Finding]:
    """Protocol rules 5, 6 and 9, and the two positions that manifests hold."""
    for region in state.regions:
        wal = Wal(state.store, region.region_id, state.base.stored)
        yield from _watermarks(region, wal)
        for part in (_flushed, _entries):
            look = partial(part, state, region, wal)
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
    torn: dict[int, TornEntryError] = {}
    for position, entry in read_listed(wal, positions):
        if entry is None:
            return  # flushed and collected since it was listed
        if isinstance(entry, TornEntryError):
            torn[position] = entry
            continue
        if isinstance(entry, MemWalError):
            yield Finding(Severity.ERROR, str(entry), wal.path(position), _remedy(entry))
            whole = False
            continue
        if entry.writer_epoch > manifest.writer_epoch:
            yield Finding(
                Severity.ERROR,
                f"the WAL entry is of writer epoch {entry.writer_epoch}, and the region's manifest "
                f"only of {manifest.writer_epoch}",
                wal.path(position),
                "the manifest is an older copy: restore the newest one",
            )
        if entry.is_fence:
            torn = {one: error for one, error in torn.items() if one not in entry.skipped}
        elif torn:  # whoever wrote these rows had been told that it was complete
            for one, cut in torn.items():
                yield Finding(Severity.ERROR, str(cut), wal.path(one), _FROM_A_COPY)
            torn, whole = {}, False
        if not whole:
            continue
        try:
            replay.add(position, entry)
            yield from _misplaced(state, region, entry, wal.path(position))
        except MemWalError as error:  # it names the file, which may be one before
            where = paths.wal_folder(region.region_id)
            yield Finding(Severity.ERROR, str(error), where, _remedy(error))
            whole = False
    for position, cut in torn.items():
        yield _torn_tail(manifest, position, cut, wal.path(position))


def _misplaced(
    state: CheckState, region: CheckedRegion, entry: WalEntry, path: str
) -> Iterator[Finding]:
    """Entries do not say whose they are, so that a file of another region can pass for one."""
    if entry.batch is None:
        return
    schema, key = memtable_schema(state.base.info.schema), state.base.info.primary_key
    rows = pa.Table.from_batches([entry_rows(entry.batch, schema, key, path)])
    wrong = misplaced(region, rows.select(list(key)))
    if wrong:
        yield Finding(
            Severity.ERROR,
            f"the WAL entry may be another region's: {wrong} and lookups miss them",
            path,
            "restore the file from a copy, or upsert these keys again",
        )


def _torn_tail(
    manifest: RegionManifest, position: int, error: TornEntryError, where: str
) -> Finding:
    if position <= manifest.wal_entry_position_last_seen:
        what = f"the WAL entry at position {position} was complete once, and is torn"
        return Finding(Severity.ERROR, f"{what}: {error}", where, _FROM_A_COPY)
    return Finding(
        Severity.WARNING,
        "the newest WAL entry is torn and counts as not there; this package leaves none on a "
        "local disk, so durable rows may be lost, unless native code was stopped while it wrote: "
        f"{error}",
        where,
        "restore the file from a copy before the next writer of the region records it as skipped; "
        "without one, write again what was written last",
    )


def _flushed(state: CheckState, region: CheckedRegion, wal: Wal) -> Iterator[Finding]:
    """What is in generations, too. Change feeds read it as far as nothing between it and what is
    not flushed was collected, `table.wal()` all of it."""
    schema, key = memtable_schema(state.base.info.schema), state.base.info.primary_key
    flushed = region.manifest.replay_after_wal_entry_position
    positions = sorted(p for p in region.files.wal if p <= flushed)
    followed = flushed + 1
    for position in reversed(positions):
        if position != followed - 1:
            break
        followed = position
    order = Order(wal)
    wrong: dict[int, MemWalError] = {}
    for position, entry in read_listed(wal, positions):
        if entry is None:
            continue  # collected since it was listed
        try:
            if isinstance(entry, MemWalError) and not isinstance(entry, TornEntryError):
                raise entry
            rows = order.rows_of(position, entry)
            if rows is not None:
                entry_rows(rows.batch, schema, key, wal.path(position))
        except TornEntryError:
            wrong |= order.torn
            order.torn.clear()
        except MemWalError as error:
            wrong[position] = error
    wrong |= {one: cut for one, cut in order.torn.items() if not is_skipped(wal, one)}
    for position in sorted(wrong):
        found = wrong[position]
        if position >= followed:
            yield Finding(
                Severity.ERROR,
                f"table.changes() can't read a flushed WAL entry: {found}",
                wal.path(position),
                _FLUSHED if isinstance(found, CorruptFileError) else _remedy(found),
            )
        else:
            yield Finding(
                Severity.WARNING,
                f"table.wal() can't read an old WAL entry, which nothing else reads: {found}",
                wal.path(position),
                "restore the file from a copy; do not delete it, as it may fence old writers",
            )


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
