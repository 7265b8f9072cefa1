"""Whether the intents of a table's logs count (protocol rules T8 to T10, V1 to V4).

The record decides. It may be gone although its transaction is committed: the table that has it, its
home, was dropped, this table was copied alone, or the file was lost. What a writer knew of an
intent stands in the next entry of its log, so that is asked before anybody takes a transaction for
refused. Where home is gone, what any region of the table says holds for all, and an intent of which
none says that it counts does not.
"""

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

Noted = Callable[[], bool | None]
"""Whether an intent counts by the log that has it; None where that does not say."""


def _nothing() -> None:
    return None


class Verdicts:
    """The verdicts over the transactions whose intents are in one table's logs.

    `home` opens the store of a table by its place relative to this one, see `Intent.home`.
    `is_known_here` tells whether any log or manifest of this table says that a transaction is
    committed; it reads all of them.
    """

    def __init__(
        self,
        incarnation: UUID,
        home: Callable[[str], ObjectStore],
        is_known_here: Callable[[Intent], bool] = lambda _: False,
    ) -> None:
        self._incarnation = incarnation
        self._home = home
        self._is_known_here = is_known_here
        self._final: OrderedDict[Intent, TransactionRecord] = OrderedDict()
        # What does not follow from a record, by position: a later attempt may have the same id.
        self._placed: OrderedDict[tuple[Intent, UUID, int], bool] = OrderedDict()
        self._homeless: dict[Intent, bool] = {}
        self._asking: WeakValueDictionary[Intent, Lock] = WeakValueDictionary()
        self._lock = Lock()

    def verdict(
        self, region: UUID, intent: Intent, position: int, noted: Noted = _nothing
    ) -> bool | None:
        """Whether the intent at a position of a region counts; None while it is undecided. `noted`
        is called where no record says that it counts.

        Raises StoreUnavailableError, CorruptFileError, and as `noted` does.
        """
        place = (self._incarnation, region)
        placed = self._placed.get((intent, region, position))
        if placed is not None:
            return placed
        kept = intent in self._final
        record = self._record(intent)
        if kept and record is not None and not record.counts(place, position):
            record = self._asked(intent)
        if record is not None and record.counts(place, position):
            return True
        counts = noted()
        if counts is None:
            counts = self._unlisted(intent, record, place, position)
        if counts is not None:
            self._place(intent, region, position, counts)
        return counts

    def record(self, intent: Intent) -> TransactionRecord | None:
        """The record of an intent's transaction, or None."""
        return self._record(intent)

    def sync_record(self, intent: Intent) -> None:
        """Make the record of an intent's transaction durable, if there is one."""
        Transactions(self._home(intent.home)).sync(intent.id)

    def is_homeless(self, intent: Intent) -> bool:
        """Whether an intent does not count because its home is gone, without any record, once its
        verdict was asked for."""
        return self._homeless.get(intent) is False and intent not in self._final

    def is_home_gone(self, intent: Intent) -> bool:
        """Whether the table that has the record of an intent is not where it was."""
        try:
            home = read_record(self._home(intent.home))
        except CorruptFileError:
            return False
        return home is None or home.incarnation != intent.incarnation

    def learn(self, intents: Iterable[Intent]) -> None:
        """Ask for several verdicts side by side."""
        unknown = [intent for intent in intents if intent not in self._final]
        if len(unknown) > 1:
            with suppress(MemWalError):  # raised to who needs the verdict
                map_concurrently(self._record, unknown)

    def settle(
        self, region: UUID, intent: Intent, position: int, by: str, noted: Noted = _nothing
    ) -> None:
        """Decide that a transaction without a verdict is aborted, if nobody has committed it: for
        the claimant of a region that has an intent of it. Raises as `verdict` and
        `Transactions.abort` do."""
        with self._lock:
            self._final.pop(intent, None)  # the record of a later attempt may be gone by now
        if self.verdict(region, intent, position, noted) is None:
            record = Transactions(self._home(intent.home)).abort(intent.id, by)
            self._keep(intent, record)
            place = (self._incarnation, region)
            if not record.counts(place, position):
                counts = self._unlisted(intent, record, place, position)
                self._place(intent, region, position, bool(counts))

    def _record(self, intent: Intent) -> TransactionRecord | None:
        """The record; None without one.

        Threads that read other regions of a transaction meanwhile wait for a record that is asked
        for. A missing record is not an answer for them, as it may have been put since.
        """
        with self._lock:
            if intent in self._final:
                return self._final[intent]
            lock = self._asking.setdefault(intent, Lock())
        others_ask = lock.locked()
        with lock:
            with self._lock:
                if intent in self._final:
                    return self._final[intent]
            if not others_ask:
                return self._asked(intent)
        return self._asked(intent)

    def _asked(self, intent: Intent) -> TransactionRecord | None:
        record = Transactions(self._home(intent.home)).read(intent.id)
        if record is not None:
            self._keep(intent, record)
        return record

    def _unlisted(
        self,
        intent: Intent,
        record: TransactionRecord | None,
        place: tuple[UUID, UUID],
        position: int,
    ) -> bool | None:
        """The verdict where no record at home lists an intent, and its log says nothing; None while
        it is undecided. Where home is gone, a record *aborted* says nothing either: who asked for
        one before the drop may have put it in place of the one that was handed over."""
        if intent.home and self.is_home_gone(intent):
            return self._without_home(intent, place, position)
        return None if record is None else False

    def _without_home(self, intent: Intent, place: tuple[UUID, UUID], position: int) -> bool:
        """The verdict of a home that is gone: by the record that it handed over when it was
        dropped, or by any region of this table."""
        record = Transactions(self._home("")).read_handed(intent.id, intent.incarnation)
        if record is not None and record.counts(place, position):
            self._keep(intent, record)
            return True
        if intent not in self._homeless:
            self._homeless[intent] = self._is_known_here(intent)
        return self._homeless[intent]

    def _place(self, intent: Intent, region: UUID, position: int, counts: bool) -> None:
        with self._lock:
            self._placed[intent, region, position] = counts
            if len(self._placed) > _KEPT:
                self._placed.popitem(last=False)

    def _keep(self, intent: Intent, record: TransactionRecord) -> None:
        with self._lock:
            self._final[intent] = record
            if len(self._final) > _KEPT:
                self._final.popitem(last=False)
