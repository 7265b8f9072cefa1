"""Intents: what a WAL entry says of the transaction that it belongs to (protocol rule T3).

An intent counts if the record of its transaction says so, which is in the folder of another table,
its *home*, where the transaction writes several.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from memwal_sql.storage.decoding import json_object, whole_number

_ATTEMPT = re.compile(r"[0-9a-f]{0,32}")
TRANSACTION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}(~[1-9][0-9]{0,5})?")
"""An id; `~` and a number follow the id of a caller in its later attempts."""

MOST_NOTES = 64
"""Of one entry. There are more than one or two only behind what native code or older versions
wrote."""

TransactionName = tuple[str, str]
"""The id of a transaction, and its attempt."""

_UP = ".."
_MOST_NAMES = 2


@dataclass(frozen=True, slots=True)
class Intent:
    """The transaction of an entry.

    Attributes:
        id: the transaction's id.
        home: where the table with its record is, relative to this table's folder: "" for this
            table, else such as `../accounts`.
        incarnation: the incarnation of that table.
        attempt: hex digits that tell it from other transactions that were given its id; "" where
            an older version of this package wrote it.
    """

    id: str
    home: str
    incarnation: UUID
    attempt: str = ""

    @property
    def name(self) -> TransactionName:
        """Tells the transaction from all others of any table; the attempt may be ""."""
        return self.id, self.attempt


@dataclass(frozen=True, slots=True)
class Note:
    """What an entry says of an intent before it in the same log: whether it counts.

    The writer of the entry knows that for certain, so it holds where the record is lost, or home
    is gone (`spec/Verdict.tla`).
    """

    position: int
    transaction: TransactionName
    counts: bool


def encode_notes(notes: Sequence[Note]) -> bytes:
    """The JSON that an entry has."""
    return json.dumps(
        [
            {"position": n.position, "id": n.transaction[0], "attempt": n.transaction[1]}
            | {"counts": n.counts}
            for n in notes
        ]
    ).encode()


def decode_notes(data: bytes) -> tuple[Note, ...]:
    """The notes of an entry. Raises what `decoding` takes."""
    content = json.loads(data)
    if not isinstance(content, list):
        raise TypeError("it has notes that are not a list")
    return tuple(
        Note(
            whole_number(each["position"], 1),
            transaction_name(each["id"], each["attempt"]),
            each["counts"] is True,
        )
        for each in content
    )


def transaction_name(transaction: str, attempt: str) -> TransactionName:
    """A name that was stored. Raises what `decoding` takes."""
    if not TRANSACTION_ID.fullmatch(transaction):
        raise ValueError(f"{transaction!r} is not the id of a transaction")
    if not _ATTEMPT.fullmatch(attempt):
        raise ValueError(f"{attempt!r} does not tell transactions with one id apart")
    return transaction, attempt


def encode_intent(intent: Intent) -> bytes:
    """The JSON that an entry has."""
    content = {"id": intent.id, "home": intent.home, "incarnation": str(intent.incarnation)}
    if intent.attempt:
        content["attempt"] = intent.attempt
    return json.dumps(content).encode()


def decode_intent(data: bytes) -> Intent:
    """The intent of an entry. Raises what `decoding` takes."""
    content = json_object(data)
    name = transaction_name(content["id"], content.get("attempt", ""))
    intent = Intent(name[0], content["home"], UUID(content["incarnation"]), name[1])
    if not is_relative(intent.home):
        raise ValueError(f"{intent.home!r} is not the place of another table")
    return intent


def is_relative(place: object) -> bool:
    """Whether a stored text is the place of another table, relative to a table's folder: "", or one
    or two `..` and then one or two names."""
    if not isinstance(place, str):
        return False
    parts = place.split("/")
    up = parts.count(_UP)
    names = parts[up:]
    if not place:
        return True
    return (
        0 < up <= _MOST_NAMES
        and parts[:up] == [_UP] * up
        and 0 < len(names) <= _MOST_NAMES
        and all(name not in ("", ".", _UP) and name.isprintable() for name in names)
    )


def relative_place(uri: str, other: str) -> str | None:
    """Where the table at `other` is, relative to the folder of the one at `uri`; None if they have
    too little of their paths in common, or are in different stores."""
    scheme, separator, path = uri.rpartition("://")
    other_scheme, _, other_path = other.rpartition("://")
    if scheme != other_scheme:
        return None
    place = posixpath.relpath(f"/{other_path.lstrip('/')}", f"/{path.lstrip('/')}")
    place = "" if place == "." else place
    in_store = not separator or path.partition("/")[0] == other_path.partition("/")[0]
    return place if in_store and is_relative(place) else None


def place_from(uri: str, place: str) -> str:
    """The URI of the table at a place relative to the folder of the one at `uri`."""
    scheme, separator, path = uri.rpartition("://")
    joined = posixpath.normpath(f"{path.lstrip('/')}/{place}")
    return f"{scheme}{separator}{joined}" if separator else f"/{joined}"
