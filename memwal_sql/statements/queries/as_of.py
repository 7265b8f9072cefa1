"""AS OF: which tables of a statement are read as they were.

    SELECT * FROM t VERSION AS OF 7 AS then JOIN t AS now ON then.id = now.id

DataFusion has no such clause. It is cut out of the text, in which all else stays where it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, Self

import datafusion
import pyarrow as pa

from memwal_sql.errors import InvalidCallError, UnsupportedError
from memwal_sql.statements.queries.planning import moment_of, values
from memwal_sql.statements.queries.tokens import Statement

_KINDS = {
    "VERSION": "version",
    "SYSTEM_VERSION": "version",
    "TIMESTAMP": "timestamp",
    "SYSTEM_TIME": "timestamp",
}


class PastOf(Protocol):
    """A table that can be read as it was."""

    def as_of(
        self,
        version: int | str | None = None,
        *,
        timestamp: datetime | str | None = None,
        checkpoint: str | None = None,
    ) -> Self:
        """A handle of the table as it was."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When a table is read, as one of the arguments of `Table.as_of`."""

    kind: str
    value: Any

    def of(self, table: PastOf) -> Any:
        """The table as it was."""
        return table.as_of(**{self.kind: self.value})


@dataclass(frozen=True, slots=True)
class AsOf:
    """A clause.

    Attributes:
        place: of its first token.
        start, end: of its characters.
        after: the end of the characters before it.
        kind: `"version"` or `"timestamp"`.
        value: an expression, as text.
    """

    place: int
    start: int
    end: int
    after: int
    kind: str
    value: str

    def moment(self, ctx: datafusion.SessionContext, parameters: Mapping[str, Any]) -> Moment:
        """What its expression comes to. Raises InvalidCallError for what can be none, and what
        `Table.as_of` raises."""
        (value,) = values(ctx, [self.value], parameters)
        if pa.types.is_timestamp(value.type) and value.is_valid:
            return Moment(self.kind, moment_of(value))
        found = value.as_py()
        if pa.types.is_nested(value.type):
            raise InvalidCallError(f"AS OF takes a version, a time or a name, not {found!r}")
        return Moment(self.kind, found)


def as_of_clauses(statement: Statement) -> list[AsOf]:
    """`[FOR] VERSION AS OF value`, and the same with SYSTEM_VERSION, TIMESTAMP and SYSTEM_TIME,
    wherever it stands; the value is a literal, a parameter, or an expression in parentheses."""
    found = []
    for place in range(1, len(statement)):
        kind = _kind(statement, place)
        if kind is None:
            continue
        first = place + 3
        last = _value_end(statement, first)
        if last is None:
            continue
        start = place - 1 if statement.keyword(place - 1) == "FOR" else place
        found.append(
            AsOf(
                start,
                statement.tokens[start].start,
                statement.tokens[last - 1].end,
                statement.tokens[start - 1].end,
                kind,
                statement.slice(first, last),
            )
        )
    return found


def check_values(statement: Statement) -> None:
    """Raise InvalidCallError, with the place, for a clause with another value, or without AS OF, in
    a statement that can't be read: in one that can be, `version AS of` is a column with another
    name."""
    for place in range(1, len(statement)):
        says_past = statement.keyword(place) == "FOR" and statement.keyword(place + 1) in _KINDS
        if says_past and _kind(statement, place + 1) is None:
            raise statement.error("of the past AS OF alone is read, as in VERSION AS OF 7", place)
        if _kind(statement, place) and _value_end(statement, place + 3) is None:
            raise statement.error(
                "AS OF takes a literal, a parameter, or an expression in parentheses", place + 3
            )


def refuse_past(statement: Statement, place: int) -> None:
    """Raise UnsupportedError, with the place, for a clause behind a table that is changed."""
    if _kind(statement, place + (statement.keyword(place) == "FOR")):
        message = "a table is changed as it is now: table.restore(...) goes back to its past"
        raise UnsupportedError(str(statement.error(message, place)))


def refuse_as_of(statement: Statement) -> None:
    """Raise UnsupportedError, with the place, for a clause in a statement that DataFusion runs."""
    for clause in as_of_clauses(statement):
        message = (
            "AS OF is for queries, and for statements that change tables of this package"
            "\nmw.register(ctx, name, table.as_of(...)) gives the past a name"
        )
        raise UnsupportedError(str(statement.error(message, clause.place)))


def _kind(statement: Statement, place: int) -> str | None:
    return _KINDS.get(statement.keyword(place)) if statement.has(place + 1, "AS OF") else None


def without(text: str, clauses: list[AsOf]) -> str:
    """The text with blanks where the clauses stood."""
    for one in clauses:
        text = text[: one.start] + " " * (one.end - one.start) + text[one.end :]
    return text


def _value_end(statement: Statement, place: int) -> int | None:
    """The place after the value that begins at one; None if none does."""
    if place >= len(statement):
        return None
    if statement.symbol(place) == "(":
        return statement.closing(place)
    if statement.keyword(place) in ("TIMESTAMP", "DATE"):
        place += 1
    kind = statement.tokens[place].kind if place < len(statement) else ""
    return place + 1 if kind in ("string", "number", "placeholder") else None
