"""Whether the intents of a table's logs count (protocol rules T8 to T10)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Lock
from uuid import UUID
from weakref import WeakValueDictionary

from exec_nodes.base.tasks import map_concurrently
from memwal_sql.errors import CorruptFileError, MemWalError
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.records.intent import Intent
from memwal_sql.storage.records.table import read_record
from memwal_sql.storage.records.transactions import TransactionRecord, Transactions

# A verdict is final, so these only save requests.
_KEPT = 10_000


class Verdicts:
    """The verdicts over the transactions whose intents are in one table's logs.

    `home` opens the store of a table by its place relative to this one, see `Intent.home`.
    """

    def __init__(self, incarnation: UUID, home: Callable[[str], ObjectStore]) -> None:
        self._incarnation = incarnation
        self._home = home
        self._final: OrderedDict[Intent, TransactionRecord | None] = OrderedDict()
        # Intents that do not count, by position: a later attempt may have the same id.
        self._denied: OrderedDict[tuple[Intent, UUID, int], None] = OrderedDict()
        self._asking: WeakValueDictionary[Intent, Lock] = WeakValueDictionary()
        self._lock = Lock()

    def verdict(self, region: UUID, intent: Intent, position: int) -> bool | None:
        """Whether the intent at a position of a region counts; None while it is undecided.

        Where its home is gone it counts: nothing that was acknowledged is lost, and no sibling is
        left there. Raises StoreUnavailableError and CorruptFileError.
        """
        place = (self._incarnation, region)
        if (intent, region, position) in self._denied:
            return False
        kept = intent in self._final
        known, record = self._record(intent)
        if kept and not _counts(record, place, position):
            known, record = self._asked(intent)
        if not known:
            return None
        if not _counts(record, place, position):
            self._deny(intent, region, position)
            return False
        return True

    def record(self, intent: Intent) -> TransactionRecord | None:
        return self._record(intent)[1]

    def learn(self, intents: Iterable[Intent]) -> None:
        """Ask for several verdicts side by side."""
        unknown = [intent for intent in intents if intent not in self._final]
        if len(unknown) > 1:
            with suppress(MemWalError):  # raised to who needs the verdict
                map_concurrently(self._record, unknown)

    def settle(self, region: UUID, intent: Intent, position: int, by: str) -> None:
        """Decide that a transaction without a record is aborted, if nobody has committed it: for
        the claimant of a region that has an intent of it. Raises as `Transactions.abort` does."""
        known, record = self._asked(intent)
        if not known:
            record = Transactions(self._home(intent.home)).abort(intent.id, by)
            self._keep(intent, record)
        if not _counts(record, (self._incarnation, region), position):
            self._deny(intent, region, position)

    def _record(self, intent: Intent) -> tuple[bool, TransactionRecord | None]:
        """Whether there is a verdict, and the record; without one where home is gone.

        Threads that read other regions of a transaction meanwhile wait for a record that is asked
        for. A missing record is not an answer for them, as it may have been put since.
        """
        with self._lock:
            if intent in self._final:
                return True, self._final[intent]
            lock = self._asking.setdefault(intent, Lock())
        others_ask = lock.locked()
        with lock:
            with self._lock:
                if intent in self._final:
                    return True, self._final[intent]
            if not others_ask:
                return self._asked(intent)
        return self._asked(intent)

    def _asked(self, intent: Intent) -> tuple[bool, TransactionRecord | None]:
        store = self._home(intent.home)
        record = Transactions(store).read(intent.id)
        if record is None and not (intent.home and self._is_gone(store, intent)):
            return False, None
        self._keep(intent, record)
        return True, record

    def _is_gone(self, store: ObjectStore, intent: Intent) -> bool:
        try:
            home = read_record(store)
        except CorruptFileError:
            return False
        return home is None or home.incarnation != intent.incarnation

    def _deny(self, intent: Intent, region: UUID, position: int) -> None:
        with self._lock:
            self._denied[intent, region, position] = None
            if len(self._denied) > _KEPT:
                self._denied.popitem(last=False)

    def _keep(self, intent: Intent, record: TransactionRecord | None) -> None:
        with self._lock:
            self._final[intent] = record
            if len(self._final) > _KEPT:
                self._final.popitem(last=False)


def _counts(record: TransactionRecord | None, place: tuple[UUID, UUID], position: int) -> bool:
    """Whether an intent counts; None is the record of a home that is gone."""
    return record is None or record.counts(place, position)
