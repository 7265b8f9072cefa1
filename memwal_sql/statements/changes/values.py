"""VALUES of an INSERT: each value is written as if it were the only one of its column.

DataFusion brings the values of a column to one type before the table's is looked at: an integer
beside 2.0 becomes a float, and a text beside a date is refused. So a column whose values are of
several types is asked for as several columns, with NULL in the rows of the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from exec_nodes.arrow.casts import Column
from exec_nodes.keys.keys import one_array
from memwal_sql.statements.changes.fitting import fitted
from memwal_sql.statements.changes.insert import GivenRows
from memwal_sql.statements.changes.reading import Reading
from memwal_sql.statements.changes.target import Target
from memwal_sql.statements.queries.tokens import Statement, Token

_NULL = "n"
# Numbers of more may be no int64, or no decimals that go together.
_DIGITS = 18
_SYMBOLS = frozenset("[],-")
_WORDS = {"TRUE": "b", "FALSE": "b", "NULL": _NULL, "DATE": "D", "TIME": "T", "TIMESTAMP": "S"}
# A literal within a list, or alone.
_ITEM = re.compile(r"(?<![^\[,])(?:-?[if]|[sbnx]|[DTS]s)(?![^\],])")


class _Cell(NamedTuple):
    """A value, from one token up to another, and its kind; None for what is no literal."""

    kind: str | None
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class ValueRows(GivenRows):
    """The rows of VALUES.

    Attributes:
        statement: what the cells are parts of.
        cells: by row, of which each has as many.
        asking: the places of the rows that have a query in one of their cells.
    """

    statement: Statement
    cells: Sequence[Sequence[_Cell]]
    asking: Sequence[int]

    def may_read_target(self, reading: Reading) -> bool:
        """Whether one of the values may, which are of types that do not go together."""
        others = [self._text(one) for row in self.cells for one in row if one.kind is None]
        shown = [f"({one}) AS c{place}" for place, one in enumerate(dict.fromkeys(others))]
        return bool(shown) and reading.may_read_target(f"SELECT {', '.join(shown)}")

    def found(self, reading: Reading) -> pa.Table:
        """The values as the query has them; those of several types in the type of their column."""
        names = self.columns or ()
        kinds = [self._kinds(reading, column) for column in zip(*self.cells, strict=True)]
        distinct = [tuple(dict.fromkeys(one)) or (_NULL,) for one in map(_without_null, kinds)]
        if len(names) != len(kinds) or max(map(len, distinct)) == 1:
            return reading.rows(self.query)
        found = iter(reading.rows(self._split(kinds, distinct)).columns)
        columns = []
        for name, own, several in zip(names, kinds, distinct, strict=True):
            parts = [next(found) for _ in several]
            if len(parts) > 1:
                field = self.target.columns.field(name)
                parts = [_united([fitted(one, field) for one in parts], own, several)]
            columns += parts
        return pa.table(columns, [*names])

    def _kinds(self, reading: Reading, column: Sequence[_Cell]) -> list[str]:
        """Those of the values of a column; two of one kind are of one type."""
        others = [self._text(cell) for cell in column if cell.kind is None]
        types = reading.types(list(dict.fromkeys(others))) if len(column) > 1 else {}
        return [
            str(types.get(self._text(cell))) if cell.kind is None else cell.kind for cell in column
        ]

    def _split(self, kinds: Sequence[Sequence[str]], distinct: Sequence[Sequence[str]]) -> str:
        """The query, with a column for each kind of a column."""
        rows: list[list[str]] = []
        for cells, own in zip(self.cells, zip(*kinds, strict=True), strict=True):
            texts: list[str] = []
            for cell, kind, several in zip(cells, own, distinct, strict=True):
                texts += [self._text(cell) if kind == one else "NULL" for one in several]
            rows.append(texts)
        query = _query(rows, self.asking)
        return f"({query})" if self.target.ctes else query

    def _text(self, cell: _Cell) -> str:
        return self.statement.slice(cell.start, cell.stop)


def given_rows(
    target: Target, statement: Statement, start: int, stop: int, columns: Sequence[str] | None
) -> GivenRows:
    """The rows of the query between two places, for these columns of the table."""
    query = statement.slice(start, stop)
    query = f"({query})" if target.ctes else query
    while statement.symbol(start) == "(" and statement.closing(start) == stop:
        start, stop = start + 1, stop - 1
    if columns is not None and statement.keyword(start) == "VALUES":
        cells = list(_rows(statement, start + 1, stop))
        if all(len(row) == len(cells[0]) > 0 for row in cells):
            asking = _asking(statement, cells)
            if asking:
                rows = [[statement.slice(one.start, one.stop) for one in row] for row in cells]
                query = _query(rows, asking)
                query = f"({query})" if target.ctes else query
            return ValueRows(target, query, columns, statement, cells, asking)
    return GivenRows(target, query, columns)


def _rows(statement: Statement, start: int, stop: int) -> Iterator[list[_Cell]]:
    """The rows between two places; at what is none, an empty one."""
    place = start
    while place < stop and statement.symbol(place) == "(":
        end = statement.closing(place)
        parts = statement.split(place + 1, end - 1)
        yield [_Cell(_kind(statement.tokens[first:last]), first, last) for first, last in parts]
        if end == stop:
            return
        place = end + 1 if statement.symbol(end) == "," else stop
    yield []


def _asking(statement: Statement, cells: Sequence[Sequence[_Cell]]) -> list[int]:
    """The places of the rows that have a query in one of their cells."""
    return [
        place
        for place, row in enumerate(cells)
        if any(one.kind is None and _has_query(statement, one) for one in row)
    ]


def _has_query(statement: Statement, cell: _Cell) -> bool:
    inner = pairwise(statement.tokens[cell.start : cell.stop])
    return any(one.value == "(" and after.keyword == "SELECT" for one, after in inner)


def _query(rows: Sequence[Sequence[str]], asking: Sequence[int]) -> str:
    """The query for rows of values, in their order: by a SELECT those of `asking`."""
    if not asking:
        plain = (f"({', '.join(row)})" for row in rows)
        return f"VALUES {', '.join(plain)}"
    names = [f"c{place}" for place in range(len(rows[0]))]
    parts = []
    for place in asking:
        shown = (f"{value} AS {name}" for value, name in zip(rows[place], names, strict=True))
        parts.append(f"SELECT {place} AS row, {', '.join(shown)}")
    if len(asking) < len(rows):
        others = sorted({*range(len(rows))} - {*asking})
        values = (f"({place}, {', '.join(rows[place])})" for place in others)
        parts.append(f"SELECT * FROM (VALUES {', '.join(values)})")
    found = ", ".join(names)
    return f"SELECT {found} FROM ({' UNION ALL '.join(parts)}) AS v(row, {found}) ORDER BY row"


def _without_null(kinds: Sequence[str]) -> Iterator[str]:
    return (kind for kind in kinds if kind != _NULL)


def _united(parts: Sequence[Column], kinds: Sequence[str], distinct: Sequence[str]) -> Column:
    """One column of several, by the kind of each row."""
    place = {kind: at for at, kind in enumerate(distinct)}
    rows = np.arange(len(kinds))
    at = np.fromiter((place.get(kind, 0) for kind in kinds), np.int64, len(kinds))
    return pa.chunked_array(list(map(one_array, parts))).take(pa.array(at * len(kinds) + rows))


def _kind(tokens: Sequence[Token]) -> str | None:
    """What the type of literals follows from, and of lists of them; None for all else."""
    shape = "".join(map(_letter, tokens))
    lists = _ITEM.sub("", shape)
    if lists.strip("[],") or "][" in lists:
        return None
    if not lists:
        return shape.removeprefix("-")
    items = {item.removeprefix("-") for item in _ITEM.findall(shape)} - {_NULL}
    depth = max(accumulate((one == "[") - (one == "]") for one in lists))
    return "[" * depth + "".join(sorted(items))


def _letter(token: Token) -> str:
    """What a token is within a literal; `?` for all that is of none."""
    value = token.value
    if token.kind == "string":
        return "s"
    if token.kind == "number":
        whole, point, fraction = value.partition(".")
        is_short = max(len(whole), len(fraction)) <= _DIGITS and (whole + fraction).isdecimal()
        return ("f" if point else "i") if is_short else "?"
    if token.kind == "symbol" and value[:2] != "X'":
        return value if value in _SYMBOLS else "?"
    return "x" if token.kind == "symbol" else _WORDS.get(token.keyword, "?")
