"""Streams of changes: which rows of a batch are upserts and which are deletes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.arrow.given_rows import FORMS, given_rows
from memwal_sql.errors import InvalidCallError

UPSERT, DELETE, BEFORE, _UNKNOWN = range(4)

# By the words of change data: SQL's, Debezium's, Flink's, Delta's and this project's own.
_CODES: Mapping[str, int] = {
    **dict.fromkeys(("upsert", "insert", "update", "c", "r", "u", "+I", "+U"), UPSERT),
    **dict.fromkeys(("update_after", "update_postimage"), UPSERT),
    **dict.fromkeys(("delete", "d", "-D"), DELETE),
    **dict.fromkeys(("update_before", "update_preimage", "-U"), BEFORE),
}


class Changes:
    """The rows of a stream of changes, in the form that they were given in: Arrow's, a dict of
    columns or a list of dicts."""

    def __init__(self, data: Any, op: str) -> None:
        """Raises InvalidCallError for rows without `op`, and for a word there that is unknown."""
        rows = given_rows(data)
        if rows is None:
            raise InvalidCallError(f"{type(data).__name__} is not a set of rows: pass {FORMS}")
        self._rows = rows
        self._op = op
        words = self._words()
        codes = [
            _CODES.get(word, _UNKNOWN) if isinstance(word, str) else _UNKNOWN for word in words
        ]
        if _UNKNOWN in codes:
            row = codes.index(_UNKNOWN)
            raise InvalidCallError(
                f"row {row} has {words[row]!r} in {op!r}, which is not one of {sorted(_CODES)}"
            )
        self._kinds = np.array(codes, np.int64)

    def places(self, kind: int) -> npt.NDArray[np.int64]:
        """Where the rows of a kind are."""
        return np.flatnonzero(self._kinds == kind)

    def rows(self, kind: int) -> Any:
        """The rows of a kind, without `op`."""
        places = self.places(kind)
        if isinstance(self._rows, pa.Table):
            return self._rows.drop_columns([self._op]).take(pa.array(places))
        if isinstance(self._rows, Mapping):
            columns = {name: _values(column) for name, column in self._rows.items()}
            del columns[self._op]
            return {name: [values[at] for at in places] for name, values in columns.items()}
        chosen = (self._rows[at] for at in places)
        return [{name: v for name, v in row.items() if name != self._op} for row in chosen]

    def _words(self) -> list[Any]:
        rows, op = self._rows, self._op
        if isinstance(rows, pa.Table):
            names: Iterable[str] = rows.column_names
        else:
            names = rows if isinstance(rows, Mapping) else {n for row in rows for n in row}
        if op not in set(names):
            raise InvalidCallError(f"op={op!r}: the rows have no such column, but {sorted(names)}")
        if isinstance(rows, pa.Table):
            words: list[Any] = rows[op].to_pylist()
            return words
        if isinstance(rows, Mapping):
            return _values(rows[op])
        return [row.get(op) for row in rows]


def _values(column: Any) -> list[Any]:
    """A column's Python values."""
    return column.to_pylist() if hasattr(column, "to_pylist") else list(column)
