"""Columns that are computed from other columns, by SQL expressions over the row."""

from __future__ import annotations

from collections.abc import Mapping

import datafusion
import pyarrow as pa

from exec_nodes.base.brief import shortened
from exec_nodes.base.interrupts import is_native
from memwal_native.syntax import SqlParser
from memwal_sql.arguments import check_expression, unquoted
from memwal_sql.errors import InvalidCallError
from memwal_sql.state.schema import stored_type
from memwal_sql.write.conditional.expressions import Expressions, unknown_column


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
        named = {name for text in columns.values() for name in _names(text)}
        # Without a column a batch would lose its number of rows.
        self.read = [name for name in schema.names if name in named] or schema.names[:1]
        rows = pa.schema([schema.field(name) for name in self.read])
        self.schema = pa.schema([_field(schema, name, text) for name, text in columns.items()])
        self._expressions = Expressions(pa.schema([*rows, *self.schema]), None, columns)
        self.compute(pa.RecordBatch.from_pylist([], rows))

    def compute(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The new columns of rows that have at least the columns `read`."""
        _, values = self._expressions.evaluate(rows.select(self.read))
        return pa.RecordBatch.from_arrays(list(values.values()), schema=self.schema)


def _names(text: str) -> list[str]:
    """The names in an expression, as DataFusion takes them: in lower case unless quoted."""
    try:
        tokens = SqlParser.tokens(text)
    except ValueError as error:
        raise InvalidCallError(f"{text!r} is not a SQL expression: {error}") from error
    names = ((kind, value) for kind, value, *_ in tokens if kind in ("word", "quoted"))
    return [value if kind == "quoted" else unquoted(value) for kind, value in names]


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
