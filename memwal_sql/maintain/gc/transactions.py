"""Collecting the records of transactions (protocol rule T14).

A record *committed* says of the intents that it lists that they count, for as long as somebody may
read one: until each is flushed and its entry is gone. An entry that a checkpoint holds is not gone.
Nobody needs the verdict over an intent without rows once that is flushed. A record *aborted* keeps
a coordinator that slept from committing, which has an hour for that (`write/coordinator`). A record
that a dropped table has handed over is needed for the intents of this table alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from memwal_sql.errors import MemWalError
from memwal_sql.maintain.gc.listing import Survey
from memwal_sql.maintain.gc.parts import Parts, PartState
from memwal_sql.maintain.gc.rules import Garbage, Kind
from memwal_sql.state.context import TableContext
from memwal_sql.storage.objects.protocol import ObjectMeta
from memwal_sql.storage.records.transactions import (
    Part,
    TransactionRecord,
    Transactions,
    attempt_of,
    handed_records,
    listed_records,
)
from memwal_sql.storage.region.manifest import RegionManifest

KEPT_SECONDS = 7 * 24 * 3600.0
"""Every record stays for so long: it is history, and tells a caller that gives its id again what
became of the transaction. Many times longer than a coordinator may take."""


class RecordCollection:
    """Decides over the records in a survey; `manifests` were read after that."""

    def __init__(
        self, context: TableContext, survey: Survey, manifests: Mapping[UUID, RegionManifest]
    ) -> None:
        self._records = Transactions(context.store)
        self._listed = listed_records(survey.transactions)
        self._handed = handed_records(survey.transactions)
        self._context = context
        self._parts = Parts(context, survey, manifests)

    def old(self, now: float, grace: float) -> list[tuple[str, ObjectMeta]]:
        """The records that are old enough, by id, of which no later attempt has a record: who asks
        for an id goes from one attempt to the next."""
        before = now - max(grace, KEPT_SECONDS)
        handed = [
            (t, m) for t, m in self._handed if m.modified is not None and m.modified <= before
        ]
        last = {attempt_of(each)[0]: each for each in sorted(self._listed, key=attempt_of)}
        return handed + [
            (transaction, meta)
            for transaction, meta in sorted(self._listed.items())
            if meta.modified is not None
            and meta.modified <= before
            and last[attempt_of(transaction)[0]] == transaction
        ]

    def decide(self, old: tuple[str, ObjectMeta]) -> Garbage | None:
        """The garbage that an old record is; None where it is needed, and where nobody can say, as
        it is damaged or another table can't be read: a check names these."""
        transaction, meta = old
        try:
            record = self._records.read_at(transaction, meta.path)
            needed = record is None or not all(map(self._is_done, self._needing(record, meta)))
        except MemWalError:
            return None
        if record is None or needed:
            return None
        return Garbage(Kind.TRANSACTION, None, meta.path, meta.size, _reason(record), (meta.path,))

    def _needing(self, record: TransactionRecord, meta: ObjectMeta) -> Iterable[Part]:
        """The parts that a record is kept for."""
        if all(meta is not other for _, other in self._handed):
            return record.parts
        own = self._context.incarnation
        return [replace(part, table="") for part in record.parts if part.incarnation == own]

    def _is_done(self, part: Part) -> bool:
        state = self._parts.state(part)
        if state is PartState.FLUSHED:
            return not part.upserts + part.deletes
        return state in (PartState.GONE, PartState.COLLECTED)


def _reason(record: TransactionRecord) -> str:
    return "flushed everywhere, a week old" if record.committed else "aborted a week ago"
