"""Streams of changes: which rows of a batch are upserts and which are deletes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.arrow.input_rows import FORMS, input_rows
from exec_nodes.base.brief import names_text
from memwal_sql.errors import InvalidCallError
from memwal_sql.write.ingest.change_codes import CODES, UNKNOWN, kind_of
from memwal_sql.write.ingest.debezium import NO_FORMS, NO_ROWS, Messages, TextForms

# Column with the operation -> further columns of such a stream, besides those of the rows.
_OPERATION_FIELDS: Mapping[str, frozenset[str]] = {
    "_change": frozenset({"_region", "_position", "_generation", "_transaction"}),
    "_change_type": frozenset({"_commit_version", "_commit_timestamp"}),
}


class Changes:
    """The rows of a stream of changes, in the form in which they were given: Arrow's, a dict of
    columns or a list of dicts. Rows in Debezium's envelopes are unwrapped."""

    def __init__(
        self,
        data: Any,
        op: str,
        schema: pa.Schema,
        primary_key: Sequence[str],
        forms: TextForms = NO_FORMS,
    ) -> None:
        """Columns of this project's feed and of Delta's that `schema` has not are left out.
        `forms` says how texts are read. Raises InvalidCallError for rows without `op`, and for an
        unknown code in it."""
        messages = Messages(schema, primary_key, op, forms)
        if isinstance(data, Sequence) and not isinstance(data, str | bytes):
            data = messages.rows(data)
        rows = input_rows(data)
        if rows is None:
            raise InvalidCallError(f"{type(data).__name__} is not a set of rows: pass {FORMS}")
        self._rows = rows
        self._op = op
        words = self._words()
        codes = [kind_of(word) for word in words]
        if UNKNOWN in codes:
            row = codes.index(UNKNOWN)
            word = words[row]
            if isinstance(word, str) and word in NO_ROWS:
                raise InvalidCallError(f"row {row} has {word!r} in {op!r}: {NO_ROWS[word]}")
            raise InvalidCallError(
                f"row {row} has {word!r} in {op!r}, which is not one of {sorted(CODES)}"
            )
        self._kinds = np.array(codes, np.int64)
        self._left_out = {op, *_OPERATION_FIELDS.get(op, frozenset()) - set(schema.names)}

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
            raise InvalidCallError(
                f"op={op!r}: the rows have no such column, only {names_text(sorted(names))}"
            )
        if isinstance(rows, pa.Table):
            words: list[Any] = rows[op].to_pylist()
            return words
        if isinstance(rows, Mapping):
            return _values(rows[op])
        return [row.get(op) for row in rows]


def _values(column: Any) -> list[Any]:
    """A column's Python values."""
    return column.to_pylist() if hasattr(column, "to_pylist") else list(column)
