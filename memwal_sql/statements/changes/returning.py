"""RETURNING: expressions over the rows that a statement changed."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from memwal_sql.errors import InvalidCallError, UnsupportedError
from memwal_sql.statements.changes.acts import Act
from memwal_sql.statements.changes.reading import ROW, Reading
from memwal_sql.statements.changes.target import Target
from memwal_sql.statements.queries.tokens import Statement

_ACTION = "merge_action"


class Returning:
    """The clause.

    Attributes:
        items: its expressions, over the rows as they were written, or, of a DELETE, as they were;
            those of a MERGE may name what was done, `merge_action`, unless that is a column.
    """

    def __init__(self, statement: Statement, start: int, target: Target, merges: bool) -> None:
        """`start` is the place after the word. Raises InvalidCallError, with the place, where no
        expression follows or all columns of another table, and UnsupportedError for DISTINCT."""
        if start == len(statement):
            raise statement.error("an expression is missing", start)
        if statement.keyword(start) == "DISTINCT":
            raise UnsupportedError(
                str(statement.error("RETURNING has a row for each that was changed", start))
            )
        names = target.columns.names
        if merges and _ACTION in names:
            _refuse_action(statement, start)
        self._target = target
        self._says_action = merges and _ACTION not in names
        self.items = []
        for first, last in statement.split(start, len(statement)):
            if statement.symbol(last - 1) == "*" and last - first in (1, 3):
                if last - first > 1 and statement.tokens[first].name != target.name_of_columns:
                    raise statement.error(
                        f"RETURNING has the columns of {target.name_of_columns!r} alone", first
                    )
                self.items += [target.column(name) for name in names]
            else:
                self.items.append(statement.slice(first, last))

    def rows(self, reading: Reading, acts: Sequence[Act]) -> pa.Table:
        """The values for each row, in the order of the acts.

        Raises InvalidCallError for a null that the writer would refuse, which has no values, and
        for expressions that have more rows or fewer.
        """
        schema = self._target.columns
        rows = pa.concat_tables([schema.empty_table(), *(act.rows for act in acts)])
        for field in schema:
            if not field.nullable and rows[field.name].null_count:
                raise InvalidCallError(
                    f"column {field.name!r} is not nullable, and a row would have NULL in it"
                )
        if self._says_action:
            kinds = [pa.repeat(pa.scalar(act.kind), act.rows.num_rows) for act in acts]
            rows = rows.append_column(_ACTION, pa.chunked_array(kinds, pa.string()))
        with reading.tables(rows=rows) as names:
            shown = ", ".join([ROW, *self.items])  # so that no word before them is of the SELECT
            found = reading.rows(f"SELECT {shown} FROM {names['rows']} AS {self._target.qualifier}")
        if found.num_rows != rows.num_rows:
            raise InvalidCallError("RETURNING must have one row for each that is changed")
        ordered = found.sort_by(ROW.strip('"'))
        return ordered.drop_columns([ROW.strip('"')])


def _refuse_action(statement: Statement, start: int) -> None:
    """Raise InvalidCallError, with the place, where `merge_action` may be the column of the table
    or what was done."""
    for place in range(start, len(statement)):
        token = statement.tokens[place]
        is_whole = statement.symbol(place - 1) != "." and statement.keyword(place - 1) != "AS"
        if token.is_name and token.name == _ACTION and is_whole:
            raise statement.error(
                f"the table has a column {_ACTION!r}: write t.{_ACTION} for that; what was done to "
                "a row has no other name",
                place,
            )


def returning_at(
    statement: Statement, start: int, target: Target, *, merges: bool = False
) -> tuple[Returning | None, int]:
    """The clause of a statement, from a place on, and the place of its word, or the end."""
    place = statement.find("RETURNING", start)
    if place == len(statement):
        return None, place
    return Returning(statement, place + 1, target, merges), place
