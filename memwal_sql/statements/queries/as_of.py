"""AS OF: which tables of a statement are read as they were.

    SELECT * FROM t VERSION AS OF 7 AS then JOIN t AS now ON then.id = now.id

DataFusion has no such clause. It is cut out of the text, in which all else stays where it was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, Self

import datafusion
import pyarrow as pa

from memwal_native.syntax import Past
from memwal_sql.errors import InvalidCallError
from memwal_sql.statements.queries.parsed import Statement
from memwal_sql.statements.queries.planning import time_of, values


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


def moment_of(ctx: datafusion.SessionContext, past: Past, parameters: Mapping[str, Any]) -> Moment:
    """What the expression of a clause comes to. Raises InvalidCallError for what can be none, and
    what `Table.as_of` raises."""
    (value,) = values(ctx, [past.value], parameters)
    if pa.types.is_timestamp(value.type) and value.is_valid:
        return Moment(past.kind, time_of(value))
    found = value.as_py()
    if pa.types.is_nested(value.type):
        raise InvalidCallError(f"AS OF takes a version, a time or a name, not {found!r}")
    return Moment(past.kind, found)


def refuse_as_of(statement: Statement) -> None:
    """Raise UnsupportedError, with the place, for a clause in a statement that DataFusion runs."""
    for past in statement.sql.pasts:
        message = (
            "AS OF is for queries, and for statements that change tables of this package"
            "\nmw.register(ctx, name, table.as_of(...)) gives the past a name"
        )
        raise statement.unsupported(message, past.start)


def without(text: str, clauses: Sequence[Past]) -> str:
    """The text with blanks where the clauses stood."""
    for past in clauses:
        text = text[: past.start] + " " * (past.end - past.start) + text[past.end :]
    return text
