"""Debezium's messages: the rows within their envelopes."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa

from exec_nodes.arrow.arrays import is_binary
from memwal_sql.errors import InvalidCallError
from memwal_sql.write.ingest.change_codes import DELETE, UNKNOWN, UPSERT, kind_of

BinaryText = Literal["base64", "base64-url-safe", "hex"]
DecimalText = Literal["precise", "string"]

# Fields around a message and within it.
_WRAPPER = frozenset({"schema", "payload"})
_SIDES = frozenset({"before", "after"})
_WRITES = frozenset({"r", "c", "u"})
_DELETE = "d"
NO_ROWS: Mapping[str, str] = {
    "t": "it says that the table was emptied: apply the messages before it, call "
    "delete_where('true'), and apply those after it",
    "m": "it is a message of a program, which is no row: leave it out",
}
"""Codes of messages without a row, and what to do about them."""
_DUMP = frozenset({"key", "value"})

# What a connector sends for a value that the database did not log.
_UNAVAILABLE = "__debezium_unavailable_value"
_DECODERS: Mapping[str, Callable[[str], bytes]] = {
    "base64": lambda text: b64decode(text, validate=True),
    "base64-url-safe": lambda text: b64decode(text, b"-_", validate=True),
    "hex": bytes.fromhex,
}
_DECIMALS = ("precise", "string")
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class TextForms:
    """How texts of messages are read in columns of other types; None: not at all.

    Attributes:
        binary: how they encode bytes.
        decimal: whether they are a decimal's digits, or the base64 of a whole number in units of
            the column's last place; Debezium's names of its modes.
    """

    binary: BinaryText | None = None
    decimal: DecimalText | None = None

    def check(self) -> None:
        """Raise InvalidCallError for an unknown form."""
        choices = {"binary": (self.binary, _DECODERS), "decimal": (self.decimal, _DECIMALS)}
        for name, (form, forms) in choices.items():
            if form is not None and form not in forms:
                raise InvalidCallError(f"{name}={form!r} must be one of {list(forms)}, or None")


NO_FORMS = TextForms()


class Messages:
    """Reads messages: rows with a column `op`, and Debezium's envelopes, `before`, `after` and
    `op`, with or without a `payload` around them."""

    def __init__(
        self, schema: pa.Schema, primary_key: Sequence[str], op: str, forms: TextForms
    ) -> None:
        """Raises InvalidCallError for an unknown form."""
        forms.check()
        self._columns = frozenset(schema.names)
        self._primary_key = tuple(primary_key)
        self._op = op
        self._forms = forms
        self._binary_columns = [field.name for field in schema if is_binary(field.type)]
        self._scales = {f.name: f.type.scale for f in schema if pa.types.is_decimal(f.type)}

    def rows(self, messages: Sequence[Any]) -> list[Any]:
        """The rows of messages in order, with their `op`: for an update of the key, a delete of the
        old one first. None, a tombstone of Kafka, repeats the delete before it.

        Raises InvalidCallError for a message without its row, or with a value that the connector
        did not send.
        """
        rows: list[Any] = []
        for place, message in enumerate(messages):
            if isinstance(message, Mapping) and {"payload"} <= message.keys() <= _WRAPPER:
                message = message["payload"]
            if message is None:
                continue
            if not isinstance(message, Mapping):
                rows.append(message)
            elif self._is_envelope(message):
                rows += self._unwrapped(place, message)
            elif message.keys() >= _DUMP and not ({self._op} | self._columns) & message.keys():
                raise InvalidCallError(
                    f"message {place} has a 'key' and a 'value': give the values, as "
                    "[message['value'] for message in messages]"
                )
            else:
                rows.append(self._row(place, message, enveloped=False))
        return rows

    def _is_envelope(self, message: Mapping[str, Any]) -> bool:
        if "op" not in message or self._op in message.keys() - {"op"}:
            return False
        word = message["op"]
        is_rowless = isinstance(word, str) and word in NO_ROWS and "op" not in self._columns
        return is_rowless or bool(_SIDES & message.keys() - self._columns)

    def _unwrapped(self, place: int, message: Mapping[str, Any]) -> list[Any]:
        word = message["op"]
        kind = kind_of(word)
        side = "before" if kind == DELETE else "after"
        row, before = message.get(side), message.get("before")
        if kind == UNKNOWN:
            if isinstance(word, str) and word in NO_ROWS:
                raise InvalidCallError(f"message {place} has the op {word!r}: {NO_ROWS[word]}")
            return [{self._op: word}]
        if not isinstance(row, Mapping):
            raise InvalidCallError(
                f"message {place} has the op {word!r} and no row in {side!r}: make the "
                "connector send it, as with REPLICA IDENTITY FULL in PostgreSQL"
            )
        rows = [{**row, self._op: word}]
        if kind == UPSERT and isinstance(before, Mapping) and self._moves(before, row):
            rows.insert(0, {**before, self._op: _DELETE})
        return [self._row(place, row, enveloped=True) for row in rows]

    def _moves(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
        """Whether an update gives its row another key; a `before` without a key does not tell."""
        old = [before.get(name) for name in self._primary_key]
        return None not in old and old != [after.get(name) for name in self._primary_key]

    def _row(self, place: int, row: Mapping[str, Any], *, enveloped: bool) -> Mapping[str, Any]:
        word = row.get(self._op)
        if self._forms.binary or enveloped:
            texts = _texts(row, self._binary_columns)
            row = {**row, **{n: self._bytes(place, n, text) for n, text in texts.items()}}
        if self._forms.decimal or enveloped:
            texts = _texts(row, self._scales)
            row = {**row, **{n: self._decimal(place, n, text) for n, text in texts.items()}}
        if isinstance(word, str) and word in _WRITES:
            name = next((name for name, value in row.items() if _is_unavailable(value)), None)
            if name is not None:
                raise InvalidCallError(
                    f"message {place} lacks the value of {name!r}, as it has {_UNAVAILABLE!r}: "
                    "set REPLICA IDENTITY FULL in PostgreSQL, so that the connector sends it"
                )
        return row

    def _bytes(self, place: int, name: str, text: str) -> bytes:
        if self._forms.binary is None:
            raise InvalidCallError(
                f"message {place} has the text {_short(text)} in the binary column {name!r}: say "
                'how it is encoded, as binary="base64", which is Debezium\'s default, or "hex"'
            )
        try:
            return _DECODERS[self._forms.binary](text)
        except (binascii.Error, ValueError) as error:
            raise InvalidCallError(
                f"message {place} has {_short(text)} in the binary column {name!r}, which is not "
                f"{self._forms.binary}: {error}"
            ) from None

    def _decimal(self, place: int, name: str, text: str) -> str | Decimal:
        if self._forms.decimal == "string" or text == _UNAVAILABLE:
            return text
        if self._forms.decimal is None:
            raise InvalidCallError(
                f"message {place} has the text {_short(text)} in the decimal column {name!r}: say "
                'how to read it, as decimal="precise", which is Debezium\'s default, or "string", '
                "as decimal.handling.mode of the connector says"
            )
        try:
            digits = int.from_bytes(_DECODERS["base64"](text), "big", signed=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidCallError(
                f"message {place} has {_short(text)} in the decimal column {name!r}, which is not "
                f'base64: {error}; give decimal="string" for texts of digits'
            ) from None
        return Decimal(f"{digits}E{-self._scales[name]}")


def _texts(row: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    return {name: value for name in names if isinstance(value := row.get(name), str)}


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def _is_unavailable(value: Any) -> bool:
    if isinstance(value, list):
        return any(_is_unavailable(part) for part in value)
    if isinstance(value, bytes):
        return value == _UNAVAILABLE.encode()
    return isinstance(value, str) and value == _UNAVAILABLE
