"""VALUES of an INSERT: each value keeps the type that it has alone.

DataFusion brings the values of a column to one type before it looks at the table: an integer next
to 2.0 becomes a float, and a text next to a date is refused. So a column with values of several
types is queried as several columns, with NULL in the rows of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from exec_nodes.arrow.casts import Column
from exec_nodes.keys.keys import one_array
from memwal_sql.statements.changes.fitting import fitted
from memwal_sql.statements.changes.insert import GivenRows
from memwal_sql.statements.changes.reading import Reading
from memwal_sql.statements.changes.target import DEFAULT, Target

# The text of a value, and its kind of literal.
Cell = tuple[str, str]
_NULL, _QUERY, _TEXT = "null", "query", "text"
_EXPRESSIONS = (_QUERY, "other")


@dataclass(frozen=True, slots=True)
class ValueRows(GivenRows):
    """The rows of VALUES.

    Attributes:
        cells: the values, by row; all rows have equally many.
        asking: the positions of the rows with a subquery.
    """

    cells: Sequence[Sequence[Cell]]
    asking: Sequence[int]

    def may_read_target(self, reading: Reading) -> bool:
        """Whether a value may, if the values are of several types."""
        texts = {text for row in self.cells for text, kind in row if kind in _EXPRESSIONS}
        shown = [f"({text}) AS c{place}" for place, text in enumerate(sorted(texts))]
        return bool(shown) and reading.may_read_target(f"SELECT {', '.join(shown)}")

    def result(self, reading: Reading) -> pa.Table:
        """The result of the query; values of several types get the type of their column."""
        names = self.columns or ()
        kinds = [_kinds(reading, column) for column in zip(*self.cells, strict=True)]
        distinct = [
            list(dict.fromkeys(k for k in column_kinds if k != _NULL)) or [_NULL]
            for column_kinds in kinds
        ]
        if len(names) != len(kinds) or max(map(len, distinct)) == 1:
            return reading.rows(self.query)
        split = iter(reading.rows(self._split(kinds, distinct)).columns)
        columns = []
        for name, column_kinds, several in zip(names, kinds, distinct, strict=True):
            parts = [next(split) for _ in several]
            if len(parts) > 1:
                field = self.target.columns.field(name)
                parts = [_united([fitted(part, field) for part in parts], column_kinds, several)]
            columns += parts
        return pa.table(columns, [*names])

    def _split(self, kinds: Sequence[Sequence[str]], distinct: Sequence[Sequence[str]]) -> str:
        """The query, with a column for each type in a column."""
        rows = [
            [
                text if kind == other else "NULL"
                for (text, _), kind, several in zip(cells, row_kinds, distinct, strict=True)
                for other in several
            ]
            for cells, row_kinds in zip(self.cells, zip(*kinds, strict=True), strict=True)
        ]
        query = _query(rows, self.asking)
        return f"({query})" if self.target.ctes else query


def value_rows(
    target: Target, query: str, rows: Sequence[Sequence[Cell]], columns: Sequence[str]
) -> GivenRows:
    """The rows of VALUES, written as `query`, for these columns of the table."""
    asking = [at for at, row in enumerate(rows) if any(kind == _QUERY for _, kind in row)]
    is_even = len({len(row) for row in rows}) == 1
    written = rows
    if DEFAULT in query.upper() and is_even and len(rows[0]) == len(columns):
        rows = [list(map(partial(_cell, target), columns, row)) for row in written]
    if (asking or rows != written) and is_even:
        query = _query([[text for text, _ in row] for row in rows], asking)
    query = f"({query})" if target.ctes else query
    if not is_even:
        return GivenRows(target, query, columns)
    return ValueRows(target, query, columns, rows, asking)


def _cell(target: Target, column: str, cell: Cell) -> Cell:
    """A cell, with the column's default in the place of the word DEFAULT."""
    default = target.default_text(column, cell[0])
    return cell if default is None else (default, _NULL if default == "NULL" else _TEXT)


def _kinds(reading: Reading, column: Sequence[Cell]) -> list[str]:
    """The kinds of a column's values; two values of one kind have one type."""
    texts = [text for text, kind in column if kind in _EXPRESSIONS]
    types = reading.types(list(dict.fromkeys(texts))) if len(column) > 1 else {}
    return [str(types.get(text)) if kind in _EXPRESSIONS else kind for text, kind in column]


def _query(rows: Sequence[Sequence[str]], asking: Sequence[int]) -> str:
    """The query for rows of values, in order. Those of `asking` are SELECTs, as DataFusion does not
    run subqueries in VALUES."""
    if not asking:
        return f"VALUES {', '.join(map(_row, rows))}"
    names = [f"c{place}" for place in range(len(rows[0]))]
    shown = ", ".join(names)
    selects = [f"SELECT {at} AS row, {_named(rows[at], names)}" for at in asking]
    if len(asking) < len(rows):
        others = sorted({*range(len(rows))} - {*asking})
        values = ", ".join(_row([str(at), *rows[at]]) for at in others)
        selects.append(f"SELECT * FROM (VALUES {values})")
    return f"SELECT {shown} FROM ({' UNION ALL '.join(selects)}) AS v(row, {shown}) ORDER BY row"


def _row(values: Sequence[str]) -> str:
    return f"({', '.join(values)})"


def _named(values: Sequence[str], names: Sequence[str]) -> str:
    return ", ".join(f"{value} AS {name}" for value, name in zip(values, names, strict=True))


def _united(parts: Sequence[Column], kinds: Sequence[str], distinct: Sequence[str]) -> Column:
    """One column made of several, by the kind of each row."""
    place = {kind: at for at, kind in enumerate(distinct)}
    rows = np.arange(len(kinds))
    at = np.fromiter((place.get(kind, 0) for kind in kinds), np.int64, len(kinds))
    return pa.chunked_array(list(map(one_array, parts))).take(pa.array(at * len(kinds) + rows))
