"""Checks of transactions: every record can be read, its parts exist, and every intent of the logs
is decided where somebody should have decided it.

An undecided intent at the end of a log is sound, and so is one whose claimant has not written yet.
The check of the logs reads the entries.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from exec_nodes.base.tasks import map_concurrently
from memwal_sql.errors import MemWalError, NotFoundError
from memwal_sql.maintain.checks.findings import FROM_A_COPY, Finding, Probe, error, first_line
from memwal_sql.maintain.checks.state import CheckedRegion, CheckState, EntryHead
from memwal_sql.maintain.gc.parts import Parts, PartState
from memwal_sql.maintain.gc.transactions import KEPT_SECONDS
from memwal_sql.storage import paths
from memwal_sql.storage.records.intent import Intent
from memwal_sql.storage.records.transactions import (
    TRANSACTIONS_FOLDER,
    TransactionRecord,
    Transactions,
)
from memwal_sql.storage.records.verdicts import Verdicts
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.versions import RegionManifests

_RECORD = "restore the file from a copy; without one, the transaction counts as not committed"
_HOMELESS = (
    "restore that table, or copy both where this one is a copy; if the transaction was committed, "
    "upsert its rows again"
)
_LOST_RECORD = "restore it from a copy: without it, other regions may lack rows of the transaction"
_REFUSED = "compare the rows of its keys with what they should be, and upsert or delete these again"
_DECIDE = "memwal_sql.outcome() decides whether it is committed"


def check_transactions(state: CheckState) -> Iterator[Finding | Probe]:
    """Protocol rules T4, T8 and T14."""
    yield Probe("the records of transactions", TRANSACTIONS_FOLDER, _records(state))
    context = state.context
    verdicts = context.new_verdicts()  # what was read before may be gone
    for region in state.regions:
        for place, head in enumerate(state.heads[region.region_id]):
            if head.intent is not None:
                path = paths.wal_path(region.region_id, head.position)
                intent = _intent(state, region, place, verdicts)
                yield Probe(f"the record of transaction {head.intent.id}", path, intent, _RECORD)


def _records(state: CheckState) -> Iterator[Finding]:
    survey, store = state.survey, state.store
    manifests = {region.region_id: region.manifest for region in state.regions}
    records, parts = Transactions(store), Parts(state.context, survey, manifests)

    def read(transaction: str) -> tuple[str, TransactionRecord | MemWalError | None]:
        try:
            return transaction, records.read(transaction)
        except MemWalError as failure:
            return transaction, failure

    ids = records.ids()
    for transaction, record in map_concurrently(read, ids) if store.remote else map(read, ids):
        path = records.path(transaction)
        if isinstance(record, MemWalError):
            state.note(record)
            what = f"the record of a transaction can't be read: {first_line(record)}"
            yield error(path, what, _RECORD)
        elif record is not None:
            yield from _lost(parts, record, path)


def _lost(parts: Parts, record: TransactionRecord, path: str) -> Iterator[Finding]:
    for part in record.parts:
        if parts.state(part) is PartState.LOST:
            table = f" of {part.table}" if part.table else ""
            yield error(
                path,
                f"the transaction is committed, but its entry at position {part.position} of "
                f"region {part.region}{table} is missing, and was not flushed",
                f"the entry: {FROM_A_COPY}",
            )


def _intent(
    state: CheckState, region: CheckedRegion, place: int, verdicts: Verdicts
) -> Iterator[Finding]:
    heads = state.heads[region.region_id]
    head, behind = heads[place], heads[place + 1 :]
    if head.intent is None:
        return
    intent, wal = head.intent, state.context.wal(region.region_id)
    noted = partial(wal.noted, intent, head.position, head.epoch)
    verdict = verdicts.verdict(region.region_id, intent, head.position, noted)
    unflushed = head.position > region.flushed
    name = f"the entry at position {head.position} is of transaction {head.intent.id}, which"
    path = paths.wal_path(region.region_id, head.position)
    if verdict is None and head.position > region.flushed and _is_recent(region, head):
        claims = {h.epoch for h in behind if h.is_claim and not h.is_native}
        writers = {h.epoch for h in behind if not h.is_claim and h.epoch > head.epoch}
        if claims & writers:
            what = f"{name} has no record, though the region was claimed, and written, since"
            yield error(path, f"{what}: its rows are left out", _RECORD)
    elif verdict is False and unflushed and head.rows and verdicts.is_homeless(intent):
        what = f"{name} has no verdict, as the table with its record, at {intent.home}, is gone"
        yield error(path, f"{what}: its {head.rows} rows are left out", _HOMELESS)
    elif verdict and unflushed and _is_record_lost(verdicts, intent):
        what = f"{name} was committed, as a later entry says, but its record is missing"
        yield error(path, what, _LOST_RECORD)
    elif not verdict and head.rows and head.position <= region.flushed:
        natives = {h.epoch for h in behind if h.is_claim and h.is_native}
        if natives and _flushed_by(state, region, head.position) in natives:
            decided, remedy = "was not committed", _REFUSED
            if verdict is None:
                decided, remedy = "nobody has decided over", f"{_DECIDE}; if not, {_REFUSED}"
            what = f"{name} {decided}, but native code has flushed its {head.rows} rows"
            yield error(path, what, remedy)


def _is_record_lost(verdicts: Verdicts, intent: Intent) -> bool:
    record = verdicts.record(intent)
    if record is not None and record.committed:
        return False
    return not (intent.home and verdicts.is_home_gone(intent))


def _is_recent(region: CheckedRegion, head: EntryHead) -> bool:
    """Whether a record *aborted* of the entry can't have been collected yet."""
    meta = region.files.wal.get(head.position)
    written = None if meta is None else meta.modified
    return written is None or written > time.time() - KEPT_SECONDS


def _flushed_by(state: CheckState, region: CheckedRegion, position: int) -> int | None:
    """The epoch that flushed an entry; None where the manifests that tell were collected."""
    manifests = RegionManifests(state.store, region.region_id)
    before: RegionManifest | None = None
    for version in sorted(region.files.manifests):
        try:
            manifest = manifests.read(version)
        except NotFoundError:
            continue
        if manifest.replay_after_wal_entry_position >= position:
            return None if before is None else manifest.writer_epoch
        before = manifest
    return None
