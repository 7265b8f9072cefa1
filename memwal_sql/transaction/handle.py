"""Transactions: reads and writes of several tables, all of whose writes count or none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import datafusion
import pyarrow as pa

from memwal_sql.errors import ConflictError, InvalidCallError
from memwal_sql.read.changes.offsets import Offsets
from memwal_sql.registration import register
from memwal_sql.state.context import TableContext
from memwal_sql.statements.run import sql
from memwal_sql.storage.objects.concurrent import seconds
from memwal_sql.storage.records.transactions import TransactionRecord, Transactions
from memwal_sql.table import Table
from memwal_sql.transaction.begin import Joined, join
from memwal_sql.transaction.commit import commit, free_id
from memwal_sql.transaction.table_inside import TableInside
from memwal_sql.write.coordinator import Description, takes_none
from memwal_sql.write.ingest.missing import ERROR, KEEP, MissingInInsert, MissingInUpsert
from memwal_sql.write.statement import SERIALIZABLE, SNAPSHOT, Isolation, check_isolation

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


class Transaction:
    """A transaction, as `memwal_sql.transaction` begins it; to be used in a `with`, by one thread.

    Attributes:
        committed: whether it is committed: after the `with`, and from the beginning where the
            record of a given id says so.
        result: what was written, once it is committed.
    """

    def __init__(
        self,
        tables: Mapping[str, Table],
        *,
        actor: str | None = None,
        operation: str | None = None,
        id: str | None = None,  # noqa: A002
        isolation: Isolation = SNAPSHOT,
        timeout_s: float = 60.0,
        clock: Callable[[], float] = seconds,
    ) -> None:
        """See `memwal_sql.transaction`."""
        check_isolation(isolation)
        if id is not None and not _GIVEN_ID.fullmatch(id):
            raise InvalidCallError(
                f"id={id!r} must be 1 to 64 letters, digits, dots, dashes and underscores, and "
                "begin with a letter or a digit"
            )
        for table in tables.values():
            if not table.context.takes_transactions:
                raise takes_none(table.uri)
        self.committed = False
        self.result: TransactionResult | None = None
        self._isolation = isolation
        self._id = id
        self._actor, self._operation = actor, operation
        self._clock, self._deadline = clock, clock() + timeout_s
        self._timeout_s = timeout_s
        self._over = False
        self._session: datafusion.SessionContext | None = None
        self._joined = dict(zip(tables, join(list(tables.values())), strict=True))
        if id is not None:
            record = free_id(Transactions(self._home.store), id)
            if isinstance(record, TransactionRecord):
                self._take(record)

    def get(self, table: Table | str, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """See `Table.get`; as of the beginning, with the transaction's own writes."""
        return self.table(table).get(keys, columns)

    def scan(
        self,
        table: Table | str,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """See `Table.scan`."""
        return self.table(table).scan(columns, filter, limit)

    def vector_search(self, table: Table | str, *args: Any, **options: Any) -> pa.Table:
        """See `Table.vector_search`."""
        return self.table(table).vector_search(*args, **options)

    def full_text_search(self, table: Table | str, *args: Any, **options: Any) -> pa.Table:
        """See `Table.full_text_search`."""
        return self.table(table).full_text_search(*args, **options)

    def upsert(
        self,
        table: Table | str,
        data: Any,
        *,
        missing: MissingInUpsert = KEEP,
        when: str | None = None,
        set: Mapping[str, str] | None = None,  # noqa: A002
    ) -> int:
        """Stage rows; the number of them. See `TableWriter.upsert`."""
        return self.table(table).upsert(data, missing=missing, when=when, set=set).rows

    def insert(self, table: Table | str, data: Any, *, missing: MissingInInsert = ERROR) -> int:
        """Stage rows with new keys; the number of them. Raises KeysExistError at once, and the
        transaction goes on."""
        return self.table(table).insert_new(data, missing=missing).rows

    def delete(self, table: Table | str, keys: Any, *, when: str | None = None) -> int:
        """Stage deletes; the number of them. See `TableWriter.delete`."""
        return self.table(table).delete(keys, when=when).rows

    def expect(self, table: Table | str, offsets: Offsets) -> None:
        """Commit only if nothing was written to a table after a place, as
        `table.change_offsets()` gives it. Raises ConflictError now if something was."""
        joined = self._of(table)
        for batch in joined.table.changes(after=offsets):
            if batch.num_rows:
                region = batch.column("_region")[0].as_py()
                raise ConflictError(
                    f"region {region} of {joined.table.uri} was written after the place that was "
                    "expected: nothing was written",
                    table=joined.table.uri,
                    region=UUID(region),
                    expected=offsets,
                )
        joined.whole = True

    def rollback(self) -> None:
        """Forget what was staged; the transaction is over. Nothing was written."""
        self._over = True

    def table(self, table: Table | str) -> TableInside:
        """A table as the transaction sees it, with all of a table's reads."""
        return self._of(table).inside

    def sql(self, text: str, **parameters: Any) -> datafusion.DataFrame:
        """Run a query, or a statement that changes rows, over the tables of the transaction under
        their names; see `memwal_sql.sql`. Changes are staged."""
        self._check_open()
        if self._session is None:
            self._session = datafusion.SessionContext()
            for name, joined in self._joined.items():
                register(self._session, name, joined.inside)
        return sql(self._session, text, **parameters)

    def commit(self) -> TransactionResult:
        """Write what was staged. Nothing is written if it raises, with the one exception of
        TransactionUnknownError.

        Raises ConflictError if others wrote the same keys, or what was to stay; FencedError if
        other processes took regions over from a program's own writer; TransactionUnknownError if
        the store did not say whether the transaction is committed.
        """
        if self.result is not None:
            return self.result
        self._check_open()
        self._over = True
        if self._clock() > self._deadline:
            raise ConflictError(
                f"the transaction took longer than {self._timeout_s} s (timeout_s): nothing was "
                "written, run it again"
            )
        return self._take(
            commit(
                list(self._joined.values()),
                self._home,
                Description(self._id, self._actor, self._operation),
                serializable=self._isolation == SERIALIZABLE,
            )
        )

    @property
    def _home(self) -> TableContext:
        return home_of(joined.table for joined in self._joined.values())

    def _take(self, record: TransactionRecord) -> TransactionResult:
        """Note that the transaction is committed by this record."""
        uris = {j.table.context.incarnation: j.table.uri for j in self._joined.values()}
        positions: dict[str, dict[UUID, int]] = {}
        for part in record.parts:
            if part.upserts or part.deletes:
                table = uris.get(part.incarnation, part.table)
                positions.setdefault(table, {})[part.region] = part.position
        rows = sum(part.upserts + part.deletes for part in record.parts)
        self.committed, self._over = True, True
        self.result = TransactionResult(record.id, rows, positions)
        return self.result

    def _of(self, table: Table | str) -> Joined:
        self._check_open()
        if isinstance(table, str) and table in self._joined:
            return self._joined[table]
        for joined in self._joined.values():
            own = joined.table.context.identity
            if isinstance(table, Table) and own == table.context.identity:
                return joined
        raise InvalidCallError(
            f"{table!r} is not a table of this transaction, which has {sorted(self._joined)}"
        )

    def _check_open(self) -> None:
        if self.committed:
            raise InvalidCallError(
                f"transaction {self._id} is committed already: look at tx.committed first"
            )
        if self._over:
            raise InvalidCallError("the transaction is over: begin another one")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self.rollback()
        elif not self._over:
            self.commit()


def home_of(tables: Iterable[Table]) -> TableContext:
    """The table that has the record of a transaction over some tables."""
    return min((table.context for table in tables), key=lambda context: context.identity)
