"""The records of transactions: a transaction is committed if and only if its record says so
(protocol rule T4).

A record is put once, if absent, in the table that is the transaction's home, and never changed:
*committed*, with the place of every intent, by who writes the transaction, or *aborted*, by who
claims a region that has an intent of it and finds no record.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from memwal_sql.errors import NotFoundError, StoreUnavailableError
from memwal_sql.storage.decoding import decoding, json_object, whole_number
from memwal_sql.storage.format_versions import check_record_version, stamp
from memwal_sql.storage.objects.create_once import settle_put
from memwal_sql.storage.objects.protocol import ObjectMeta, ObjectStore
from memwal_sql.storage.paths import RECORD_FOLDER
from memwal_sql.storage.records.intent import TRANSACTION_ID, is_relative

MOST_PARTS = 256
"""The participants that a transaction may have: its record stays small, and so many regions stand
still while it is written."""

LONGEST_SECONDS = 3600.0
"""The time that a coordinator has from its intents to its record. A record *aborted* stays for 7
days, and one that slept for longer might otherwise commit after it is gone."""

TRANSACTIONS_FOLDER = f"{RECORD_FOLDER}/transactions"

_SUFFIX = ".json"
_HANDED = "@"  # is in no id
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_COMMITTED, _ABORTED = "committed", "aborted"
MOST_SHOWN = 1000


@dataclass(frozen=True, slots=True)
class Part:
    """What a transaction has written to a region.

    Attributes:
        table: the place of the region's table, relative to the home's folder.
        incarnation: that of the table.
        position: the WAL position of the intent.
        epoch: the writer epoch that wrote it.
        upserts: the number of rows written, without deletes.
        deletes: the number of keys deleted.
    """

    table: str
    incarnation: UUID
    region: UUID
    position: int
    epoch: int
    upserts: int = 0
    deletes: int = 0

    @property
    def place(self) -> tuple[UUID, UUID]:
        """The region among those of all tables."""
        return self.incarnation, self.region


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """The verdict over a transaction; `parts` is empty where that is *aborted*.

    Attributes:
        time: when the record was made, by the clock of its writer.
        actor: who the transaction was written for, as the caller says.
        operation: what it does, as the caller says, or the text of the statement.
        by: who aborted it.
    """

    id: str
    committed: bool
    time: datetime
    actor: str | None = None
    operation: str | None = None
    parts: tuple[Part, ...] = ()
    by: str | None = None

    def counts(self, place: tuple[UUID, UUID], position: int) -> bool:
        """Whether the intent at a position of a region is part of the transaction: not one that an
        earlier attempt with the same id left."""
        return any(part.place == place and part.position == position for part in self.parts)


def handed_records(listed: Iterable[ObjectMeta]) -> list[tuple[str, ObjectMeta]]:
    """The records that other tables have handed over among the objects of `TRANSACTIONS_FOLDER`, by
    the id of their transaction."""
    named = ((meta.path.rpartition("/")[2].partition(_HANDED), meta) for meta in listed)
    return [
        (name[0], meta)
        for name, meta in named
        if name[2].endswith(_SUFFIX) and TRANSACTION_ID.fullmatch(name[0])
    ]


def new_transaction_id(now: datetime) -> str:
    """26 characters, a ULID: ids of later milliseconds sort behind earlier ones."""
    number = int(now.timestamp() * 1000) << 80 | secrets.randbits(80)
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


def listed_records(listed: Iterable[ObjectMeta]) -> dict[str, ObjectMeta]:
    """The records among the objects of `TRANSACTIONS_FOLDER`, by the id of their transaction."""
    names = ((meta.path.rpartition("/")[2], meta) for meta in listed)
    records = {name.removesuffix(_SUFFIX): meta for name, meta in names if name.endswith(_SUFFIX)}
    return {name: meta for name, meta in records.items() if TRANSACTION_ID.fullmatch(name)}


def attempt_of(transaction_id: str) -> tuple[str, int]:
    """The id that was given, and the number of the attempt with it, from 1."""
    given, _, number = transaction_id.partition("~")
    return given, int(number or 1)


def next_attempt(transaction_id: str) -> str:
    """The id of the attempt after one that was aborted."""
    given, number = attempt_of(transaction_id)
    return f"{given}~{number + 1}"


def utc_now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


class Transactions:
    """The records of one home table."""

    def __init__(self, store: ObjectStore, clock: Callable[[], datetime] = utc_now) -> None:
        self._store = store
        self._clock = clock

    def path(self, transaction_id: str) -> str:
        return f"{TRANSACTIONS_FOLDER}/{transaction_id}{_SUFFIX}"

    def read(self, transaction_id: str) -> TransactionRecord | None:
        """A record; None if there is none. Raises CorruptFileError."""
        return self.read_at(transaction_id, self.path(transaction_id))

    def read_handed(self, transaction_id: str, home: UUID) -> TransactionRecord | None:
        """A record that another table, of this incarnation, has handed over; None without one."""
        return self.read_at(transaction_id, self._handed_path(transaction_id, home))

    def read_at(self, transaction_id: str, path: str) -> TransactionRecord | None:
        """A record that is at a path. Raises as `read`."""
        try:
            data = self._store.get(path)
        except NotFoundError:
            return None
        return self._decode(transaction_id, data)

    def hand_over(self, transaction_id: str, home: UUID, to: Transactions) -> None:
        """Give another table of the transaction the record, as this one, of the incarnation `home`,
        is about to be deleted."""
        path = to._handed_path(transaction_id, home)
        settle_put(to._store, path, self._store.get(self.path(transaction_id)))

    def commit(
        self,
        transaction_id: str,
        parts: Sequence[Part],
        actor: str | None = None,
        operation: str | None = None,
    ) -> TransactionRecord:
        """Put the record *committed*, unless there is a record; returns the one that is there.

        Raises OutcomeUnknownError when neither could be found out, and StoreUnavailableError when
        nothing was written.
        """
        described = {"actor": _shown(actor), "operation": _shown(operation)}
        listed = [
            {
                "table": part.table,
                "incarnation": str(part.incarnation),
                "region": str(part.region),
                "position": part.position,
                "epoch": part.epoch,
                "upserts": part.upserts,
                "deletes": part.deletes,
            }
            for part in parts
        ]
        return self._put(transaction_id, {"verdict": _COMMITTED, **described, "parts": listed})

    def abort(self, transaction_id: str, by: str) -> TransactionRecord:
        """Put the record *aborted*, unless there is a record; returns the one that is there. Raises
        as `commit` does."""
        return self._put(transaction_id, {"verdict": _ABORTED, "by": by})

    def sync(self, transaction_id: str) -> None:
        """Make a record durable that somebody else has put on a local disk, if it is there."""
        path = self.path(transaction_id)
        if not self._store.remote and self._store.exists(path):
            try:
                self._store.sync(path)
            except StoreUnavailableError:
                if self._store.exists(path):
                    raise  # or else its table was dropped meanwhile

    def ids(self) -> list[str]:
        """The ids of all records, ascending: those without a name of the caller by time."""
        return sorted(self.listed())

    def listed(self) -> dict[str, ObjectMeta]:
        """All records, by the id of their transaction: one listing."""
        return listed_records(self._store.list(TRANSACTIONS_FOLDER))

    def delete(self, ids: Iterable[str]) -> None:
        """Remove records that nobody needs any more."""
        self._store.delete([self.path(transaction_id) for transaction_id in ids])

    def _handed_path(self, transaction_id: str, home: UUID) -> str:
        return f"{TRANSACTIONS_FOLDER}/{transaction_id}{_HANDED}{home}{_SUFFIX}"

    def _put(self, transaction_id: str, content: Mapping[str, Any]) -> TransactionRecord:
        time = self._clock().isoformat(timespec="milliseconds")
        whole = {**stamp(), "nonce": uuid4().hex, "time": time, **content}
        data = json.dumps(whole, indent=1).encode()
        existing = settle_put(self._store, self.path(transaction_id), data)
        return self._decode(transaction_id, data if existing is None else existing)

    def _decode(self, transaction_id: str, data: bytes) -> TransactionRecord:
        path = self.path(transaction_id)
        with decoding(path, "the record of a transaction"):
            content = json_object(data)
            check_record_version(path, content)
            verdict = content["verdict"]
            if verdict not in (_COMMITTED, _ABORTED):
                raise ValueError(f"{verdict!r} is not a verdict")
            parts = content["parts"] if verdict == _COMMITTED else []
            return TransactionRecord(
                transaction_id,
                verdict == _COMMITTED,
                datetime.fromisoformat(content["time"]),
                _shown(_text(content.get("actor"))),
                _shown(_text(content.get("operation"))),
                tuple(map(_part, parts)),
                _text(content.get("by")),
            )


def _shown(text: str | None) -> str | None:
    return None if text is None else text[:MOST_SHOWN]


def _part(content: Mapping[str, Any]) -> Part:
    if not is_relative(content["table"]):
        raise ValueError(f"{content['table']!r} is not the place of a table")
    return Part(
        content["table"],
        UUID(content["incarnation"]),
        UUID(content["region"]),
        whole_number(content["position"], 1),
        whole_number(content["epoch"]),
        whole_number(content["upserts"]),
        whole_number(content["deletes"]),
    )


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def free_id(records: Transactions, given: str) -> TransactionRecord | str:
    """The committed record of any attempt with this id; else an id for the next attempt, which has
    no record."""
    attempt = given
    while True:
        record = records.read(attempt)
        if record is None:
            # While an attempt began, the record before it may have been collected as the last one.
            record = records.read(next_attempt(attempt))
            if record is None:
                return attempt
            attempt = next_attempt(attempt)
        if record.committed:
            return record
        attempt = next_attempt(attempt)
