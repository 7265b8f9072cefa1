"""Streams of changes: which rows of a batch are upserts and which are deletes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.arrow.input_rows import FORMS, input_rows
from memwal_sql.errors import InvalidCallError

UPSERT, DELETE, BEFORE, _UNKNOWN = range(4)

# Word of a change feed -> kind: SQL, Debezium, Flink, Delta and this project.
_CODES: Mapping[str, int] = {
    **dict.fromkeys(("upsert", "insert", "update", "c", "r", "u", "+I", "+U"), UPSERT),
    **dict.fromkeys(("update_after", "update_postimage"), UPSERT),
    **dict.fromkeys(("delete", "d", "-D"), DELETE),
    **dict.fromkeys(("update_before", "update_preimage", "-U"), BEFORE),
}


# Column with the operation -> further columns of such a stream, besides those of the rows.
_OPERATION_FIELDS: Mapping[str, frozenset[str]] = {
    "_change": frozenset({"_region", "_position", "_generation", "_transaction"}),
    "_change_type": frozenset({"_commit_version", "_commit_timestamp"}),
}

# Debezium's fields around a message and within it.
_WRAPPER = frozenset({"schema", "payload"})
_SIDES = frozenset({"before", "after"})


class Changes:
    """The rows of a stream of changes, in the form in which they were given: Arrow's, a dict of
    columns or a list of dicts. Rows in Debezium's envelopes are unwrapped."""

    def __init__(self, data: Any, op: str, columns: Collection[str] = ()) -> None:
        """`columns` are the table's: further columns of this project's feed and of Delta's are left
        out. Raises InvalidCallError for rows without `op`, and for an unknown code in it."""
        if isinstance(data, Sequence) and not isinstance(data, str | bytes):
            data = _messages(data, op, frozenset(columns))
        rows = input_rows(data)
        if rows is None:
            raise InvalidCallError(f"{type(data).__name__} is not a set of rows: pass {FORMS}")
        self._rows = rows
        self._op = op
        words = self._words()
        codes = [_kind(word) for word in words]
        if _UNKNOWN in codes:
            row = codes.index(_UNKNOWN)
            raise InvalidCallError(
                f"row {row} has {words[row]!r} in {op!r}, which is not one of {sorted(_CODES)}"
            )
        self._kinds = np.array(codes, np.int64)
        self._left_out = {op, *_OPERATION_FIELDS.get(op, frozenset()) - set(columns)}

    def places(self, kind: int) -> npt.NDArray[np.int64]:
        """The positions of the rows of a kind."""
        return np.flatnonzero(self._kinds == kind)

    def rows(self, kind: int) -> Any:
        """The rows of a kind, without `op` and the stream's further columns."""
        places, left_out = self.places(kind), self._left_out
        if isinstance(self._rows, pa.Table):
            names = [name for name in self._rows.column_names if name not in left_out]
            return self._rows.select(names).take(pa.array(places))
        if isinstance(self._rows, Mapping):
            columns = {
                n: _values(column_values)
                for n, column_values in self._rows.items()
                if n not in left_out
            }
            return {name: [values[at] for at in places] for name, values in columns.items()}
        chosen = (self._rows[at] for at in places)
        return [{name: v for name, v in row.items() if name not in left_out} for row in chosen]

    def _words(self) -> list[Any]:
        rows, op = self._rows, self._op
        if not isinstance(rows, pa.Table | Mapping) and not rows:
            return []
        if isinstance(rows, pa.Table):
            names: Iterable[str] = rows.column_names
        else:
            names = rows if isinstance(rows, Mapping) else {n for row in rows for n in row}
        if op not in set(names):
            raise InvalidCallError(f"op={op!r}: the rows have no such column, only {sorted(names)}")
        if isinstance(rows, pa.Table):
            words: list[Any] = rows[op].to_pylist()
            return words
        if isinstance(rows, Mapping):
            return _values(rows[op])
        return [row.get(op) for row in rows]


def _kind(word: Any) -> int:
    return _CODES.get(word, _UNKNOWN) if isinstance(word, str) else _UNKNOWN


def _messages(messages: Sequence[Any], op: str, columns: Set[str]) -> Sequence[Any]:
    """The rows of messages, with their `op`. Debezium's envelopes, `before`, `after` and `op` with
    or without a `payload` around them, are unwrapped; others stay as they are. None is a tombstone
    of Kafka, which repeats the delete before it."""
    rows = []
    for place, message in enumerate(messages):
        if isinstance(message, Mapping) and {"payload"} <= message.keys() <= _WRAPPER:
            message = message["payload"]
        if message is None:
            continue
        if not isinstance(message, Mapping) or op in message.keys() - {"op"}:
            rows.append(message)
        elif "op" in message and _SIDES & message.keys() - columns:
            word = message["op"]
            code = _kind(word)
            side = "before" if code == DELETE else "after"
            row = message.get(side)
            if not isinstance(row, Mapping) and code != _UNKNOWN:
                raise InvalidCallError(
                    f"message {place} has the op {word!r} and no row in {side!r}: make the "
                    "connector send it, as with REPLICA IDENTITY FULL in PostgreSQL"
                )
            rows.append({**(row or {}), op: word})
        else:
            rows.append(message)
    return rows


def _values(column: Any) -> list[Any]:
    """A column's Python values."""
    return column.to_pylist() if hasattr(column, "to_pylist") else list(column)
