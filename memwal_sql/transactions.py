"""The calls of users: `memwal_sql.transaction`, `run_transaction`, `outcome` and `history`."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Literal, TypedDict, TypeVar, Unpack

import pyarrow as pa

from memwal_sql.errors import ConflictError, InvalidCallError
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.records.intent import place_from
from memwal_sql.storage.records.transactions import TransactionRecord, Transactions
from memwal_sql.storage.retries import with_retries
from memwal_sql.table import Table
from memwal_sql.transaction.commit import free_id
from memwal_sql.transaction.handle import Transaction, home_of
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
        actor: who it is done for; kept in `history`.
        operation: what is done; kept in `history`, up to 1,000 characters.
        id: a name for this transaction, such as the place of a message in a queue. It is written
            once however often it is run: where it is committed already, `tx.committed` is true from
            the beginning. The records that tell are kept for 7 days at least.
        isolation: `"snapshot"`: the first committer of a key wins. `"serializable"`: nothing that
            was read may have been written meanwhile.
        timeout_s: the seconds until the commit.

    Raises InvalidCallError for tables of the same name, and UnsupportedError for a table that older
    packages may write. The commit raises as `Transaction.commit`.
    """
    by_name = dict(named or {})
    for table in tables:
        name = _name_of(table)
        if by_name.setdefault(name, table) is not table:
            raise InvalidCallError(f"two tables are named {name!r}: give one in named={{...}}")
    if not by_name:
        raise InvalidCallError("a transaction needs the tables that it reads and writes")
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
        tables: all tables that the transaction was begun with.
        id: its id, as `TransactionUnknownError.id` or `tx.result.id` has it, or as it was given.
    """
    records = Transactions(home_of(tables).store)
    record = free_id(records, id)
    if not isinstance(record, TransactionRecord):
        record = records.abort(id, "memwal_sql.outcome")
    return "committed" if record.committed else "aborted"


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
    rows = [row for table in tables for row in _records(table, actor, after)]
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


def _name_of(table: Table) -> str:
    return posixpath.basename(table.uri).removesuffix(".lance").lower()
