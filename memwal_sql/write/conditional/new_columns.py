"""Columns that are computed from other columns, by SQL expressions over the row."""

from __future__ import annotations

from collections.abc import Mapping

import datafusion
import pyarrow as pa

from exec_nodes.base.brief import shortened
from exec_nodes.base.interrupts import is_native
from memwal_sql.arguments import check_expression
from memwal_sql.errors import InvalidCallError
from memwal_sql.state.schema import stored_type
from memwal_sql.write.conditional.expressions import Expressions, plain, unknown_column
from memwal_sql.write.conditional.groups import named


class NewColumns:
    """Columns to add.

    Attributes:
        read: the columns that the expressions use.
        schema: the new columns, in the types that DataFusion gives the expressions.
    """

    def __init__(self, schema: pa.Schema, columns: Mapping[str, str]) -> None:
        """Raises InvalidCallError for anything but expressions over the row."""
        if not columns:
            raise InvalidCallError("columns={}: name the columns to add")
        for name, text in columns.items():
            if not isinstance(text, str):
                raise InvalidCallError(f"{name}: {text!r} is not a SQL expression given as text")
        # Without a column a batch would lose its number of rows.
        self.read = named(schema.names, columns.values()) or schema.names[:1]
        rows = pa.schema([schema.field(name) for name in self.read])
        self.schema = pa.schema([_field(schema, name, text) for name, text in columns.items()])
        self._expressions = Expressions(pa.schema([*rows, *self.schema]), None, columns)
        self.compute(pa.RecordBatch.from_pylist([], rows))

    def compute(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The new columns of rows that have at least the columns `read`."""
        _, values = self._expressions.evaluate(plain(rows.select(self.read)))
        return pa.RecordBatch.from_arrays(list(values.values()), schema=self.schema)


def _field(rows: pa.Schema, name: str, text: str) -> pa.Field:
    check_expression(text)
    frame = datafusion.SessionContext().from_arrow(rows.empty_table())
    try:
        kind = stored_type(frame.select(frame.parse_sql_expr(text)).schema().field(0).type)
    except Exception as error:
        if not is_native(error):
            raise
        reason = unknown_column(str(error), rows) or shortened(str(error))
        raise InvalidCallError(
            f"{name}: {text!r} is not an expression over the row: {reason}"
        ) from error
    if pa.types.is_null(kind):
        raise InvalidCallError(f"{name}: {text!r} has no type: CAST(NULL AS BIGINT) has one")
    return pa.field(name, kind)
