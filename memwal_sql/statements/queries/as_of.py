"""AS OF: tables of a statement that are read in a past state.

    SELECT * FROM t VERSION AS OF 7 AS then JOIN t AS now ON then.id = now.id

DataFusion has no such clause. It is blanked out of the text; the rest keeps its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import datafusion
import pyarrow as pa

from memwal_native.syntax import Past
from memwal_sql.errors import InvalidCallError
from memwal_sql.statements.queries.parsed import Statement
from memwal_sql.statements.queries.planning import time_of, values
from memwal_sql.table import Table


@dataclass(frozen=True, slots=True)
class PastState:
    """A past state of a table, as one of the arguments of `Table.as_of`."""

    kind: str
    value: Any

    def of(self, table: Table) -> Table:
        """The table in this state."""
        return table.as_of(**{self.kind: self.value})


def past_state_of(
    ctx: datafusion.SessionContext, past: Past, parameters: Mapping[str, Any]
) -> PastState:
    """The value of a clause's expression. Raises InvalidCallError for a value of the wrong type,
    and what `Table.as_of` raises."""
    (value,) = values(ctx, [past.value], parameters)
    if pa.types.is_timestamp(value.type) and value.is_valid:
        return PastState(past.kind, time_of(value))
    plain = value.as_py()
    if pa.types.is_nested(value.type):
        raise InvalidCallError(f"AS OF takes a version, a time or a name, not {plain!r}")
    return PastState(past.kind, plain)


def refuse_as_of(statement: Statement) -> None:
    """Raise UnsupportedError, with the place, for AS OF in a statement that DataFusion runs."""
    for past in statement.sql.pasts:
        message = (
            "AS OF is for queries, and for statements that change tables of this package"
            "\nmw.register(ctx, name, table.as_of(...)) gives the past a name"
        )
        raise statement.unsupported(message, past.start)


def without(text: str, clauses: Sequence[Past]) -> str:
    """The text with blanks in place of the clauses."""
    for past in clauses:
        text = text[: past.start] + " " * (past.end - past.start) + text[past.end :]
    return text
