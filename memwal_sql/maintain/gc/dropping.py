"""What a table that is about to be deleted leaves to others: the verdicts over transactions that it
shares with them (protocol rule V5).

A record says first that the table is being dropped, so that nobody claims a region for writing any
more. Then its regions get fences, and what is undecided there is decided, which keeps coordinators
that are under way from committing: each has an intent in its home. Records *committed* are handed
over to the other tables of the transaction. Records *aborted* stay for as long as a coordinator may
still put one of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from functools import partial
from itertools import compress
from uuid import UUID

from memwal_sql.errors import FencedError, NotFoundError, RepairError
from memwal_sql.life_log import life_log
from memwal_sql.maintain.gc.listing import Survey
from memwal_sql.maintain.gc.parts import Parts, PartState
from memwal_sql.state.context import TableContext
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.objects.store_time import store_time
from memwal_sql.storage.records.table import Records, record_drop
from memwal_sql.storage.records.transactions import LONGEST_SECONDS, TransactionRecord, Transactions
from memwal_sql.storage.region.versions import RegionManifests, region_ids
from memwal_sql.storage.retries import with_retries
from memwal_sql.write.claim import fence_out

_log = life_log(__name__)


def settle_and_hand_over(context: TableContext) -> frozenset[str]:
    """Do so; the ids of the transactions that are committed. What is damaged is passed over. The
    table's first record is gone then, so that all others go by what was handed over to them.

    Raises StoreUnavailableError.
    """
    if context.record is not None:
        record_drop(context.store, context.record)
    regions = region_ids(context.store)
    map_remote(context.store.remote, partial(_fence_out, context), regions)
    records = Transactions(context.store)
    parts = Parts(context, Survey(), {})

    def hand_over(transaction: str) -> bool:
        try:
            record = records.read(transaction)
            if record is None or not record.committed:
                return False
            for table in _others(parts, record):
                other = Transactions(context.home(table))
                records.hand_over(transaction, context.incarnation, other)
        except RepairError as error:
            kind = type(error).__name__
            _log.warning("transaction %s is not handed over: %s", transaction, kind)
        return True

    ids = records.ids()
    committed = compress(ids, map_remote(context.store.remote, hand_over, ids))
    own = Records(context.store, "table")
    own.delete(own.versions()[:-1])  # the last one keeps refusing claims by open handles
    return frozenset(committed)


def aborted_lately(store: ObjectStore, committed: Collection[str]) -> frozenset[str]:
    """The paths of the records *aborted* that are to stay, as a coordinator may still put one of
    its own. `committed` are ids of transactions that are known to be committed."""
    records = Transactions(store)
    listed = records.listed()
    now = store_time(store) if listed else None
    young = [
        transaction
        for transaction, meta in sorted(listed.items())
        if transaction not in committed
        and (now is None or meta.modified is None or meta.modified > now - LONGEST_SECONDS)
    ]

    def stays(transaction: str) -> bool:
        try:
            record = records.read(transaction)
        except RepairError:
            return False
        return record is not None and not record.committed

    found = map_remote(store.remote, stays, young)
    return frozenset(listed[transaction].path for transaction in compress(young, found))


def _fence_out(context: TableContext, region: UUID) -> None:
    manifests, wal = RegionManifests(context.store, region), context.wal(region)
    try:
        with suppress(NotFoundError):  # it has no manifest
            with_retries(
                lambda: fence_out(manifests, wal), f"fencing region {region}", on=FencedError
            )
    except RepairError as error:
        _log.warning("region %s is dropped as it is: %s", region, type(error).__name__)


def _others(parts: Parts, record: TransactionRecord) -> set[str]:
    """The other tables that have an entry of a transaction."""
    done = (PartState.GONE, PartState.COLLECTED)
    return {p.table for p in record.parts if p.table and parts.state(p) not in done}
