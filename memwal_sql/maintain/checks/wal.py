"""Checks of the write-ahead log: no gap above the flushed position, and every entry is valid."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

import pyarrow as pa

from memwal_sql.errors import (
    CorruptFileError,
    MemWalError,
    RepairError,
    TornEntryError,
    UnknownFormatError,
)
from memwal_sql.maintain.checks.findings import (
    FROM_A_COPY,
    Finding,
    Probe,
    error,
    lacking_in,
    warning,
)
from memwal_sql.maintain.checks.keys import misplaced
from memwal_sql.maintain.checks.state import CheckedRegion, CheckState, EntryHead
from memwal_sql.state.entry_rows import entry_rows
from memwal_sql.state.memtable import memtable_schema
from memwal_sql.state.replay import Replay, memtables_of, read_listed
from memwal_sql.storage import paths
from memwal_sql.storage.wal.log import Wal, WalEntry
from memwal_sql.storage.wal.order import Order

_FLUSHED = (
    "restore the file from a copy; or, once no follower of the change feed needs it, flush and let "
    "table.collect_garbage() pass it: its rows are in a generation or in the base table"
)


def check_wal(state: CheckState) -> Iterator[Finding | Probe]:
    """Protocol rules 5, 6 and 9, and the two positions that manifests hold."""
    for region in state.regions:
        wal = state.context.wal(region.region_id, state.base.stored)
        folder, above = paths.wal_folder(region.region_id), region.last + 1
        yield from _positions(region, wal)
        yield Probe(f"the log of {region.name}", folder, _entries(state, region, wal))
        # A folder in place of a file is not listed, and ends the log for readers.
        yield Probe(f"the WAL entry at position {above}", wal.path(above), _unlisted(wal, above))


def _positions(region: CheckedRegion, wal: Wal) -> Iterator[Finding]:
    seen, flushed = region.manifest.wal_entry_position_last_seen, region.flushed
    if seen > flushed and seen not in region.files.wal:
        what = f"the WAL entry at position {seen} was seen before, but is missing"
        yield error(wal.path(seen), what, FROM_A_COPY)
    if flushed and flushed not in region.files.wal:
        yield warning(
            wal.path(flushed),
            f"the last flushed WAL entry, at position {flushed}, is missing; native code looks for "
            "it when it opens the region",
            "none needed for this package",
        )
    for before, after in pairwise([flushed, *(p for p in region.positions if p > flushed)]):
        if after != before + 1:
            what = f"the WAL entries at {lacking_in(before + 1, after, ())} are missing, and later"
            yield error(wal.path(before + 1), f"{what} ones exist", FROM_A_COPY)


def _entries(state: CheckState, region: CheckedRegion, wal: Wal) -> Iterator[Finding]:
    """Findings of the whole log, which is read once. Change feeds read it down to the last
    collected entry, `table.wal()` all of it; unflushed entries are also replayed."""
    manifest, info, flushed = region.manifest, state.base.info, region.flushed
    schema, key = memtable_schema(info.schema), info.primary_key
    order, replay = Order(wal), Replay(wal, manifest.current_generation, memtables_of(info, ""))
    # After a missing entry, the others can't be replayed in order.
    replays = region.last - flushed == sum(p > flushed for p in region.positions)
    damaged = state.damaged[region.region_id]
    wrong: dict[int, MemWalError] = {}
    for position, entry in read_listed(wal, region.positions):
        try:
            if entry is None:  # collected since the listing
                replays &= position <= flushed
                continue
            if isinstance(entry, MemWalError):
                damaged[position] = (entry, None)
                if not isinstance(entry, TornEntryError):
                    raise entry
            else:
                for skipped in damaged.keys() & entry.skipped:
                    damaged[skipped] = (damaged[skipped][0], position)
                yield from _ahead(region, entry.writer_epoch, wal.path(position))
                heads = state.heads[region.region_id]
                if heads or entry.intent is not None:
                    heads.append(_head(entry))
            rows = order.rows_of(position, entry)
            if rows is None or rows.batch is None:
                continue
            batch = entry_rows(rows.batch, schema, key, wal.path(position))
            if position > flushed and replays:
                replay.add(position, rows)
                yield from _misplaced(region, batch.select(list(key)), wal.path(position))
        except TornEntryError:  # a later writer took the entry for complete
            wrong |= order.torn
            order.torn.clear()
            replays &= position <= flushed
        except MemWalError as failure:
            wrong[position] = failure
            state.note(failure)
            replays &= position <= flushed
    for position, torn in order.torn.items():
        if position > flushed:
            yield _torn_tail(region, position, torn, wal.path(position))
        else:
            wrong[position] = torn
    followed = region.followed
    for position in sorted(wrong):
        yield _damaged(wrong[position], wal.path(position), position - flushed, position < followed)


def _head(entry: WalEntry) -> EntryHead:
    return EntryHead(
        entry.position,
        entry.writer_epoch,
        0 if entry.batch is None else entry.batch.num_rows,
        entry.intent,
        is_claim=entry.is_fence and entry.intent is None,
        is_native=entry.nonce is None,
    )


def _damaged(failure: MemWalError, where: str, above: int, passed: bool) -> Finding:
    if above > 0:
        return error(where, str(failure), _remedy(failure))
    if passed:
        what = f"table.wal() can't read an old WAL entry, which nothing else reads: {failure}"
        remedy = "restore the file from a copy; do not delete it, as it may fence old writers"
        return warning(where, what, remedy)
    remedy = _FLUSHED if isinstance(failure, CorruptFileError) else _remedy(failure)
    return error(where, f"table.changes() can't read a flushed WAL entry: {failure}", remedy)


def _ahead(region: CheckedRegion, epoch: int, path: str) -> Iterator[Finding]:
    if epoch > region.manifest.writer_epoch:
        yield error(
            path,
            f"the WAL entry has writer epoch {epoch}, but the region's manifest only "
            f"{region.manifest.writer_epoch}",
            "the manifest is an older copy: restore the newest one",
        )


def _misplaced(region: CheckedRegion, keys: pa.RecordBatch, path: str) -> Iterator[Finding]:
    """Findings for entries that may be another region's, as entries do not name their region."""
    wrong = misplaced(region, pa.Table.from_batches([keys]))
    if wrong:
        what = f"the WAL entry may be another region's: {wrong} and lookups miss them"
        yield error(path, what, "restore the file from a copy, or upsert these keys again")


def _torn_tail(region: CheckedRegion, position: int, torn: TornEntryError, path: str) -> Finding:
    if position <= region.manifest.wal_entry_position_last_seen:
        what = f"the WAL entry at position {position} was complete before, but is torn: {torn}"
        return error(path, what, FROM_A_COPY)
    return warning(
        path,
        "the newest WAL entry is torn and does not count; this package leaves none on a "
        "local disk, so durable rows may be lost, unless native code was stopped while it wrote: "
        f"{torn}",
        "restore the file from a copy before the next writer of the region records it as skipped; "
        "without one, write the last rows again",
    )


def _unlisted(wal: Wal, position: int) -> Iterator[Finding]:
    with suppress(TornEntryError):  # written meanwhile
        wal.read(position)
    yield from ()


def _remedy(failure: MemWalError) -> str:
    if isinstance(failure, CorruptFileError):
        return FROM_A_COPY
    if not isinstance(failure, RepairError):
        return "check again when the store answers"
    if isinstance(failure, UnknownFormatError):
        return "install a newer version, or flush with the program that wrote the entry"
    return "give the fields the names that they had, flush with table.writer(), rename them again"
