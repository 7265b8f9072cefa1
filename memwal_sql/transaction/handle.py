"""Transactions: reads and writes of several tables, all of whose writes count or none."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from types import TracebackType
from typing import NoReturn, Self
from uuid import UUID

from exec_nodes.base.ticker import Ticks
from memwal_sql.errors import (
    ConflictError,
    InvalidCallError,
    MemWalError,
    TransactionUnknownError,
    UnsupportedError,
)
from memwal_sql.state.context import TableContext
from memwal_sql.storage.objects.concurrent import seconds
from memwal_sql.storage.records.transactions import (
    MOST_SHOWN,
    TransactionRecord,
    utc_now,
)
from memwal_sql.table import Table
from memwal_sql.telemetry import CONFLICTS
from memwal_sql.transaction.begin import Joined, join
from memwal_sql.transaction.commit import Commit
from memwal_sql.transaction.traces import earlier, is_known, traced
from memwal_sql.write.coordinator import Description, home_of, takes_none
from memwal_sql.write.statement import SERIALIZABLE, SNAPSHOT, Isolation, check_isolation

READ_ONLY = "the transaction began with READ ONLY: ROLLBACK, and BEGIN another one"
_IS_OVER = "the transaction is over: begin another one"
_IS_UNKNOWN = (
    "the transaction is over, and it is not known whether it is committed: mw.outcome tells"
)
_GIVEN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """A committed transaction.

    Attributes:
        id: names it in `memwal_sql.history`, and in the column `_transaction` of change feeds.
        rows: rows written, tombstones for deletes.
        positions: the WAL position of its rows, by the table's URI and the region.
    """

    id: str
    rows: int
    positions: Mapping[str, Mapping[UUID, int]] = field(default_factory=dict)


class OpenTransaction:
    """What calls and statements stage until it is committed or rolled back, and the one state of
    tables that they read. For one thread.

    Attributes:
        committed: whether it is committed: after the `with`, and from the beginning where the
            record of a given id says so.
        result: what was written, once it is committed.
        isolation: its isolation level.
        reads_only: whether changes are refused in the tables that join from now on.
    """

    def __init__(
        self,
        tables: Sequence[Table] = (),
        *,
        actor: str | None = None,
        operation: str | None = None,
        id: str | None = None,  # noqa: A002
        isolation: Isolation = SNAPSHOT,
        timeout_s: float = 60.0,
        clock: Callable[[], float] = seconds,
    ) -> None:
        """See `memwal_sql.transaction`; other tables join at their first use."""
        check_isolation(isolation)
        if id is not None and not (isinstance(id, str) and _GIVEN_ID.fullmatch(id)):
            raise InvalidCallError(
                f"id={id!r} must be 1 to 64 letters, digits, dots, dashes and underscores, and "
                "begin with a letter or a digit"
            )
        for name, value in (("actor", actor), ("operation", operation)):
            if not isinstance(value, str | None):
                raise InvalidCallError(f"{name}={value!r} must be a text")
        if actor is not None and len(actor) > MOST_SHOWN:
            raise InvalidCallError(
                f"actor={actor!r} has {len(actor):,} characters: {MOST_SHOWN:,} are the most"
            )
        if not isinstance(timeout_s, int | float) or not timeout_s > 0:
            raise InvalidCallError(f"timeout_s={timeout_s!r} must be a number of seconds above 0")
        self.committed = False
        self.result: TransactionResult | None = None
        self.isolation = isolation
        self.reads_only = False
        self._id = id
        self._actor, self._operation = actor, operation
        self._statements: list[str] = []
        self._clock, self._deadline = clock, clock() + timeout_s
        self._timeout_s = timeout_s
        self._over = False
        self._expired = False
        self._ticks: Ticks | None = None
        self._lock, self._commits = Lock(), Lock()
        self._joined: list[Joined] = []
        self._joined = self._join(tables)
        if id is not None:
            record = self._earlier(id)
            if record is not None:
                self._take(record)
        self._ticks = None if self._over else Ticks(self._expire, timeout_s)

    def inside(self, table: Table) -> Table:
        """A table as the transaction sees it: in one state with all tables that it uses, and with
        the rows staged since. A past state stays as it is.

        Raises ConflictError if the table joins now, and others have written those used before; and
        UnsupportedError for a table that Lance or LanceDB has made.
        """
        if table.newest_of is None:
            return table
        with self._lock:
            if self._expired or not self._over:
                self._check_open()
            for joined in self._joined:
                if joined.table.context.identity == table.context.identity:
                    return joined.inside
            self._check_open()
            self._joined += self._join([table])
            inside = self._joined[-1].inside
            if self.reads_only:
                inside.scope.close(UnsupportedError(READ_ONLY))
            return inside

    def note(self, statement: str) -> None:
        """Keep the text of a statement, as `memwal_sql.history` shows them if no operation was
        given."""
        self._statements.append(statement)

    def rollback(self) -> None:
        """Forget what was staged; the transaction is over. Nothing was written."""
        self._expired = False
        self._end(
            InvalidCallError(
                "the transaction was rolled back: read the results of its queries before that"
            )
        )

    def _end(self, error: MemWalError) -> None:
        """Forget the state that is read and what was staged: calls get an error from now on."""
        self._over = True
        for joined in self._joined:
            joined.inside.scope.end(error)
            joined.cuts.clear()  # nobody need remember what is written any more
        if self._ticks is not None:
            self._ticks.stop()

    def _expire(self) -> None:
        """End the transaction when its time is over, unless it is in use: then it is at its next
        statement, or after that time again."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if not self._over and self._clock() > self._deadline:
                self._expired = True
                self._end(self._timeout())
        finally:
            self._lock.release()

    def _timeout(self) -> ConflictError:
        return ConflictError(
            f"the transaction took longer than {self._timeout_s} s (timeout_s), and nothing was "
            "written: run all of it again, in SQL after ROLLBACK"
        )

    def commit(self) -> TransactionResult:
        """Write what was staged. Nothing is written if it raises, with the one exception of
        TransactionUnknownError.

        Raises ConflictError if others wrote the same keys, or what was to stay, or committed a
        transaction with its id; ReopenError if columns have changed since it began; FencedError if
        other processes took regions over from a program's own writer; BackPressureError for lack of
        room; UnsupportedError for rows of too many regions or too large for one MemTable, and for
        tables too far apart; TransactionUnknownError if the store did not say whether the
        transaction is committed.
        """
        with self._commits:  # a second thread gets the answer of the first
            if self.result is not None:
                return self.result
            with self._lock:
                self._check_open()
                self._over = True
            try:
                return self._take(self._commit())
            except BaseException as error:
                if isinstance(error, ConflictError):
                    CONFLICTS(1, {"table": error.table or self._home.uri})
                if isinstance(error, Exception) and not isinstance(error, TransactionUnknownError):
                    self.rollback()
                else:  # an interrupt leaves it open, too
                    self._end(InvalidCallError(_IS_UNKNOWN))
                raise

    def _commit(self) -> TransactionRecord:
        if not self._joined:
            return TransactionRecord("", True, utc_now())
        operation = self._operation or "; ".join(self._statements) or None
        description = Description(self._id, self._actor, operation)
        serializable = self.isolation == SERIALIZABLE
        return Commit(self._joined, self._home, description, serializable).run()

    def _earlier(self, given: str) -> TransactionRecord | None:
        """The record *committed* of an earlier transaction with a given id: in any of the tables.
        One that was begun with other tables may have its record with one of those."""
        record = earlier((joined.table.context for joined in self._joined), given)
        if isinstance(record, TransactionRecord):
            return record
        known = (joined.table for joined in self._joined if is_known(joined.table, given))
        records = (traced(table.context, given) for table in known)
        return next((record for record in records if record and record.committed), None)

    def _join(self, tables: Sequence[Table]) -> list[Joined]:
        for table in tables:
            if table.newest_of is None:
                raise InvalidCallError(
                    f"{table!r} is a past state: a transaction reads and writes the present, so "
                    "give the table itself"
                )
            if not table.context.takes_transactions:
                raise takes_none(table.context)
        return join(tables, self._joined) if tables else []

    @property
    def _home(self) -> TableContext:
        return home_of(joined.table.context for joined in self._joined)

    def _take(self, record: TransactionRecord) -> TransactionResult:
        """Note that the transaction is committed by this record."""
        uris = {j.table.context.incarnation: j.table.uri for j in self._joined}
        positions: dict[str, dict[UUID, int]] = {}
        for part in record.parts:
            if part.upserts or part.deletes:
                table = uris.get(part.incarnation, part.table)
                positions.setdefault(table, {})[part.region] = part.position
        rows = sum(part.upserts + part.deletes for part in record.parts)
        self.committed, self._over = True, True
        for joined in self._joined:
            joined.inside.scope.close(InvalidCallError(_IS_OVER))
            joined.cuts.clear()
        if self._ticks is not None:
            self._ticks.stop()
        self.result = TransactionResult(record.id, rows, positions)
        return self.result

    def _check_open(self) -> None:
        if self.committed:
            given = "" if self._id is None else f" {self._id}, which tx.committed tells"
            raise InvalidCallError(f"the transaction{given} is committed: begin another one")
        if self._over and not self._expired:
            raise InvalidCallError(_IS_OVER)
        if self._clock() > self._deadline:
            self._expired = True
            self._end(self._timeout())
        if self._expired:
            raise self._timeout()

    def __reduce__(self) -> NoReturn:
        raise InvalidCallError(
            "a transaction can't be pickled or copied: it is for one thread of one process; begin "
            "another one there"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and not self.committed:
            self.rollback()
        elif not self._over or self._expired:
            self.commit()
