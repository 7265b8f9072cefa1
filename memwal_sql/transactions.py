"""The calls of users: `memwal_sql.transaction`, `run_transaction`, `outcome` and `history`."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict, TypeVar, Unpack
from uuid import UUID

import datafusion
import pyarrow as pa

from memwal_sql.errors import ConflictError, InvalidCallError
from memwal_sql.read.changes.offsets import Offsets
from memwal_sql.registration import mount
from memwal_sql.session.session import session_of
from memwal_sql.state.open_writers import live_table_writer
from memwal_sql.statements.run import sql
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.records.intent import TRANSACTION_ID, place_from
from memwal_sql.storage.records.transactions import TransactionRecord, Transactions
from memwal_sql.storage.retries import with_retries
from memwal_sql.table import Table
from memwal_sql.transaction.begin import Joined
from memwal_sql.transaction.handle import OpenTransaction
from memwal_sql.transaction.staging import Staging
from memwal_sql.transaction.table_inside import TableInside
from memwal_sql.transaction.traces import earlier, traced
from memwal_sql.write.ingest.debezium import BinaryText, DecimalText
from memwal_sql.write.ingest.missing import KEEP, MissingInUpsert
from memwal_sql.write.statement import Isolation

R = TypeVar("R")
HISTORY = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("actor", pa.string()),
        pa.field("operation", pa.string()),
        pa.field("tables", pa.list_(pa.string()), nullable=False),
        pa.field("regions", pa.int64(), nullable=False),
        pa.field("upserts", pa.int64(), nullable=False),
        pa.field("deletes", pa.int64(), nullable=False),
    ]
)


class TransactionArguments(TypedDict, total=False):
    """The arguments of `transaction` besides its tables."""

    actor: str | None
    operation: str | None
    id: str | None
    isolation: Isolation
    timeout_s: float


class Transaction(OpenTransaction):
    """A transaction, as `memwal_sql.transaction` begins it; to be used in a `with`.

    It is for one thread.
    """

    def __init__(
        self, tables: Mapping[str, Table], **arguments: Unpack[TransactionArguments]
    ) -> None:
        """See `memwal_sql.transaction`."""
        distinct = {table.context.identity: table for table in tables.values()}
        super().__init__(list(distinct.values()), **arguments)
        by_table = dict(zip(distinct, self._joined, strict=True))
        self._names = {name: by_table[table.context.identity] for name, table in tables.items()}
        self._session: datafusion.SessionContext | None = None

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
        return self._staging(table).upsert(data, missing=missing, when=when, set=set).rows

    def insert(self, table: Table | str, data: Any, *, missing: MissingInUpsert = KEEP) -> int:
        """Stage rows with new keys; the number of them. Raises KeysExistError at once, and the
        transaction goes on."""
        return self._staging(table).insert(data, missing=missing).rows

    def delete(self, table: Table | str, keys: Any, *, when: str | None = None) -> int:
        """Stage deletes; the number of them. See `TableWriter.delete`."""
        return self._staging(table).delete(keys, when=when).rows

    def delete_where(self, table: Table | str, where: str) -> int:
        """Stage deletes of the rows that meet a SQL condition; the number of them."""
        return self._staging(table).delete_where(where).rows

    def update(
        self,
        table: Table | str,
        set: Mapping[str, str],  # noqa: A002
        *,
        where: str | None = None,
    ) -> int:
        """Stage new values of columns; the number of rows. See `TableWriter.update`."""
        return self._staging(table).update(set, where=where).rows

    def apply(
        self,
        table: Table | str,
        changes: Any,
        *,
        op: str = "_op",
        when: str | None = None,
        binary: BinaryText | None = None,
        decimal: DecimalText | None = None,
    ) -> int:
        """Stage a stream of changes in order; the number of rows. See `TableWriter.apply`."""
        staging = self._staging(table)
        return staging.apply(changes, op=op, when=when, binary=binary, decimal=decimal).rows

    def expect(self, table: Table | str, offsets: Offsets) -> None:
        """Commit only if nothing was written to a table after a place, as
        `table.change_offsets()` gives it. Raises ConflictError now if something was."""
        joined = self._of(table)
        writer = live_table_writer(joined.table.context.identity)
        if writer is not None:
            writer.sync()  # buffered rows count too
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

    def table(self, table: Table | str) -> TableInside:
        """A table as the transaction sees it, with all of a table's reads."""
        return self._of(table).inside

    def sql(self, text: str, **parameters: Any) -> datafusion.DataFrame:
        """Run a query, or a statement that changes rows, over the tables of the transaction under
        their names; see `memwal_sql.sql`. Changes are staged."""
        self._check_open()
        if self._session is None:
            self._session = datafusion.SessionContext()
            for name, joined in self._names.items():
                mount(self._session, name, joined.table)
            session_of(self._session).slot.put(self)
        return sql(self._session, text, **parameters)

    def _staging(self, table: Table | str) -> Staging:
        return self._of(table).inside.staging

    def _of(self, table: Table | str) -> Joined:
        self._check_open()
        if isinstance(table, str) and table in self._names:
            return self._names[table]
        for joined in self._joined:
            own = joined.table.context.identity
            if isinstance(table, Table) and own == table.context.identity:
                return joined
        raise InvalidCallError(
            f"{table!r} is not a table of this transaction, which has {sorted(self._names)}"
        )


def transaction(
    *tables: Table, named: dict[str, Table] | None = None, **arguments: Unpack[TransactionArguments]
) -> Transaction:
    """Begin a transaction over some tables, to be used in a `with`.

        with mw.transaction(accounts, journal) as tx:
            tx.sql("UPDATE accounts SET n = n - 5 WHERE id = 7")
            tx.upsert(journal, {"id": [1], "text": ["5 from 7"]})

    Reads see the tables in one state, that of this call, with what the transaction has staged. At
    the end of the block everything is written, and every reader sees all of it or nothing; after an
    exception nothing is.

    Args:
        tables: those that are read or written; `tx.sql` knows each by the last name in its URI.
        named: further tables, by their names in `tx.sql`.
        actor: who it is done for, in up to 1,000 characters; kept in `history`.
        operation: what is done; kept in `history`, up to 1,000 characters. By default the
            statements of `tx.sql` that change rows.
        id: a name for this transaction, such as the place of a message in a queue. It is written
            once however often it is run: where it is committed already, `tx.committed` is true from
            the beginning. The records that tell are kept for 7 days at least.
        isolation: `"snapshot"`: the first committer of a key wins. `"serializable"`: nothing that
            was read may have been written meanwhile.
        timeout_s: the seconds within which the commit must begin; later calls raise ConflictError.

    Raises InvalidCallError for tables of the same name, and UnsupportedError for a table that older
    packages may write. The commit raises as `Transaction.commit`.

    Examples:
        >>> with mw.transaction(table) as tx:
        ...     degrees = tx.get(table, 1)["degrees"][0].as_py()
        ...     rows = tx.upsert(table, [{"id": 1, "city": "Oslo", "degrees": degrees + 1}])
        >>> table.get(1, ["degrees"]).to_pylist()
        [{'degrees': 4.0}]
    """
    by_name = dict(named or {})
    _check_tables((*tables, *by_name.values()))
    for table in tables:
        name = _name_of(table)
        if by_name.setdefault(name, table) is not table:
            raise InvalidCallError(f"two tables are named {name!r}: give one in named={{...}}")
    return Transaction(by_name, **arguments)


def run_transaction(
    work: Callable[[Transaction], R],
    *tables: Table,
    attempts: int = 10,
    **arguments: Unpack[TransactionArguments],
) -> R | None:
    """Call `work` with a transaction, commit it, and return the result; again, up to `attempts`
    times with growing pauses, if others came first. `work` is not called if the transaction of the
    given id is committed already; then the result is None. See `transaction`."""

    def attempt() -> R | None:
        with transaction(*tables, **arguments) as tx:
            return None if tx.committed else work(tx)

    return with_retries(attempt, "a transaction", on=ConflictError, attempts=attempts)


def outcome(*tables: Table, id: str) -> Literal["committed", "aborted"]:  # noqa: A002
    """Whether a transaction over these tables is committed; if nobody has decided that yet, it is
    aborted by this call.

    Args:
        tables: those that the transaction was begun with, or some that it has written: their logs
            and manifests tell where its record is.
        id: its id, as `TransactionUnknownError.id` or `tx.result.id` has it, or as it was given.

    Raises InvalidCallError for what is not the id of a transaction.
    """
    _check_tables(tables)
    if not TRANSACTION_ID.fullmatch(id):
        raise InvalidCallError(f"id={id!r} is not the id of a transaction")
    by = "memwal_sql.outcome"
    contexts = {table.context.uri: table.context for table in tables}
    free = earlier(contexts.values(), id)
    if isinstance(free, TransactionRecord):
        return "committed"
    traces = [traced(context, id, decide_by=by) for context in contexts.values()]
    if not any(trace is not None and trace.committed for trace in traces):
        traces = [Transactions(contexts[uri].store).abort(free[uri], by) for uri in free]
    return "committed" if any(trace and trace.committed for trace in traces) else "aborted"


def history(
    *tables: Table,
    actor: str | None = None,
    after: datetime | None = None,
    limit: int = 1000,
) -> pa.Table:
    """The committed transactions, the newest first: id, time, actor, operation, the URIs of the
    tables written, and how many regions, upserts and deletes they have.

    A transaction over several tables is kept with one of them: give all. Records are kept for 7
    days at least.

    Args:
        actor: only those of this actor.
        after: only later ones; with a time zone.
        limit: the most rows.
    """
    _check_tables(tables)
    if limit < 0:
        raise InvalidCallError(f"limit={limit} is less than 0")
    if after is not None and after.tzinfo is None:
        raise InvalidCallError(f"after={after!r} has no time zone")
    distinct = {table.context.identity: table for table in tables}
    rows = [row for table in distinct.values() for row in _records(table, actor, after)]
    rows.sort(key=lambda row: (row["time"], row["id"]), reverse=True)
    return pa.Table.from_pylist(rows[:limit], HISTORY)


def _records(
    table: Table, actor: str | None, after: datetime | None
) -> Iterator[dict[str, object]]:
    records, uri = Transactions(table.context.store), table.uri
    ids = records.ids()
    for record in map_remote(table.context.store.remote, records.read, reversed(ids)):
        if record is None or not record.committed:
            continue
        if (actor is not None and record.actor != actor) or (after and record.time <= after):
            continue
        places = dict.fromkeys(part.table for part in record.parts)
        yield {
            "id": record.id,
            "time": record.time,
            "actor": record.actor,
            "operation": record.operation,
            "tables": [place_from(uri, place) for place in places],
            "regions": len(record.parts),
            "upserts": sum(part.upserts for part in record.parts),
            "deletes": sum(part.deletes for part in record.parts),
        }


def _check_tables(tables: Collection[object]) -> None:
    if not tables:
        raise InvalidCallError("give the tables of the transactions")
    for table in tables:
        if not isinstance(table, Table):
            raise InvalidCallError(f"{table!r} is not a table: mw.open_table(place) opens one")


def _name_of(table: Table) -> str:
    return posixpath.basename(table.uri).removesuffix(".lance").lower()
