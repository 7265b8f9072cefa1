"""RETURNING: expressions over the rows that a statement changed."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from memwal_native.syntax import Item
from memwal_sql.errors import InvalidCallError
from memwal_sql.statements.changes.acts import Act
from memwal_sql.statements.changes.reading import ROW, Reading
from memwal_sql.statements.changes.target import Target
from memwal_sql.statements.queries.parsed import Statement

_ACTION = "merge_action"


class Returning:
    """The clause.

    Attributes:
        items: its expressions, over the rows as they were written, or, of a DELETE, as they were;
            those of a MERGE may name what was done, `merge_action`, unless that is a column.
    """

    def __init__(
        self, statement: Statement, items: Sequence[Item], target: Target, merges: bool
    ) -> None:
        """Raises InvalidCallError, with the place, for all columns of another table, and for
        `merge_action` where that may be a column or what was done."""
        names = target.columns.names
        self._target = target
        self._says_action = merges and _ACTION not in names
        self.items = []
        for item in items:
            if item.star is None:
                if merges and not self._says_action:
                    _refuse_action(statement, item)
                self.items.append(item.text)
                continue
            if item.star and item.star[-1] != target.name_of_columns:
                raise statement.error(
                    f"RETURNING has the columns of {target.name_of_columns!r} alone", item.start
                )
            self.items += [target.column(name) for name in names]

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
            computed = reading.rows(
                f"SELECT {shown} FROM {names['rows']} AS {self._target.qualifier}"
            )
        if computed.num_rows != rows.num_rows:
            raise InvalidCallError("RETURNING must have one row for each that is changed")
        ordered = computed.sort_by(ROW.strip('"'))
        return ordered.drop_columns([ROW.strip('"')])


def _refuse_action(statement: Statement, item: Item) -> None:
    """Raise InvalidCallError, with the place, where `merge_action` may be the column of the table
    or what was done."""
    columns = () if item.expression is None else item.expression.columns
    for column in columns:
        if column.parts == [_ACTION]:
            raise statement.error(
                f"the table has a column {_ACTION!r}: write t.{_ACTION} for that; what was done to "
                "a row has no other name",
                column.start,
            )


def returning_of(
    statement: Statement, items: Sequence[Item] | None, target: Target, *, merges: bool = False
) -> Returning | None:
    """The clause of a statement; None if it has none."""
    return None if items is None else Returning(statement, items, target, merges)
