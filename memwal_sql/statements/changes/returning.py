"""RETURNING: expressions over the rows that a statement changed."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from exec_nodes.arrow.arrays import is_json
from exec_nodes.keys.keys import one_array
from memwal_native.syntax import Item
from memwal_sql.errors import InvalidCallError
from memwal_sql.statements.changes.reading import ROW, ROW_NAME, Reading
from memwal_sql.statements.changes.row_actions import RowAction
from memwal_sql.statements.changes.target import Target
from memwal_sql.statements.queries.parsed import Statement
from memwal_sql.write.ingest.json_texts import stored_json

_ACTION = "merge_action"


class Returning:
    """The clause.

    Attributes:
        items: its expressions, over the rows as written or, in a DELETE, as they were; in a MERGE
            they may name the kind of change, `merge_action`, unless that is a column.
    """

    def __init__(
        self, statement: Statement, items: Sequence[Item], target: Target, merges: bool
    ) -> None:
        """Raises InvalidCallError, with the place, for all columns of another table, and for an
        ambiguous `merge_action`."""
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
                    f"RETURNING can only use the columns of {target.name_of_columns!r}", item.start
                )
            self.items += [target.column(name) for name in names]

    def rows(self, reading: Reading, actions: Sequence[RowAction]) -> pa.Table:
        """The values for each row, in the order of the actions.

        Raises InvalidCallError for a null that the writer would refuse, and for expressions that
        give more or fewer rows.
        """
        schema = self._target.columns
        rows = pa.concat_tables([schema.empty_table(), *(action.rows for action in actions)])
        for field in schema:
            if not field.nullable and rows[field.name].null_count:
                raise InvalidCallError(
                    f"column {field.name!r} is not nullable, and a row would have NULL in it"
                )
            if is_json(field.type):
                place = schema.get_field_index(field.name)
                texts = stored_json(one_array(rows[field.name]), field.name)
                rows = rows.set_column(place, field, texts)
        if self._says_action:
            kinds = [pa.repeat(pa.scalar(action.kind), action.rows.num_rows) for action in actions]
            rows = rows.append_column(_ACTION, pa.chunked_array(kinds, pa.string()))
        with reading.tables(rows=rows) as names:
            shown = ", ".join([ROW, *self.items])  # ROW first: DISTINCT or ALL is an error
            computed = reading.rows(
                f"SELECT {shown} FROM {names['rows']} AS {self._target.qualifier}"
            )
        if computed.num_rows != rows.num_rows:
            raise InvalidCallError("RETURNING must give one row for each changed row")
        ordered = computed.sort_by(ROW_NAME)
        return ordered.drop_columns([ROW_NAME])


def _refuse_action(statement: Statement, item: Item) -> None:
    """Raise InvalidCallError, with the place, for a `merge_action` that may be the table's column
    or the kind of change."""
    columns = () if item.expression is None else item.expression.columns
    for column in columns:
        if column.parts == [_ACTION]:
            raise statement.error(
                f"the table has a column {_ACTION!r}: write t.{_ACTION} for it; the kind of change "
                "has no other name",
                column.start,
            )


def returning_of(
    statement: Statement, items: Sequence[Item] | None, target: Target, *, merges: bool = False
) -> Returning | None:
    """The clause of a statement; None without one."""
    return None if items is None else Returning(statement, items, target, merges)
