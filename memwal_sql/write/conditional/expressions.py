"""SQL expressions over the rows of a write: what is there, `t`, and what is given, `s`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import datafusion
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.casts import exact_cast
from exec_nodes.keys.keys import one_array
from memwal_sql.errors import InvalidCallError

WHEN = "when"


class Expressions:
    """A condition and the new values of columns, evaluated by DataFusion for a batch at once.

    Names mean DataFusion's: of `pairs`, `t.n` is the column `n` of the row that is there and `s.n`
    the one given; of rows as they are, `n` is the column.
    """

    def __init__(self, schema: pa.Schema, when: str | None, columns: Mapping[str, str]) -> None:
        """Raises InvalidCallError for what is no text, and for columns the table has not."""
        for name, text in [(WHEN, when), *columns.items()]:
            if not isinstance(text, str) and not (name == WHEN and text is None):
                raise InvalidCallError(f"{name}: {text!r} is no SQL expression, as text")
        unknown = sorted(set(columns) - set(schema.names))
        if unknown:
            raise InvalidCallError(f"the table has no columns {unknown}; it has {schema.names}")
        self._schema = schema
        self.when = when
        self.columns = dict(columns)

    def __bool__(self) -> bool:
        return self.when is not None or bool(self.columns)

    def evaluate(self, rows: pa.RecordBatch) -> tuple[pa.BooleanArray, dict[str, pa.Array]]:
        """For each row whether the condition is true, and the columns' values in their types.

        Raises InvalidCallError for one that can't be evaluated or whose value does not fit.
        """
        texts = [*([self.when] if self.when is not None else []), *self.columns.values()]
        values = _evaluated(rows, texts)
        condition = pa.repeat(pa.scalar(True), rows.num_rows)
        if self.when is not None:
            condition, *values = values
            if not pa.types.is_boolean(condition.type):
                raise InvalidCallError(f"when={self.when!r} is {condition.type}, no condition")
        fields = (self._schema.field(name) for name in self.columns)
        cast = {f.name: _fitting(v, f) for f, v in zip(fields, values, strict=True)}
        return pc.fill_null(condition, False), cast


def pairs(old: pa.RecordBatch, given: pa.RecordBatch | None = None) -> pa.RecordBatch:
    """Rows that are there, as `t`, beside those given, as `s`."""
    sides = {"t": old} if given is None else {"t": old, "s": given}
    structs = [rows.to_struct_array() for rows in sides.values()]
    return pa.RecordBatch.from_arrays(structs, list(sides))


def _fitting(values: pa.Array, field: pa.Field) -> pa.Array:
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), field.type)
    return one_array(exact_cast(values, field))


def _evaluated(rows: pa.RecordBatch, texts: Sequence[str]) -> list[pa.Array]:
    """Their values for each row, in the rows' order: one partition keeps it."""
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    frame = context.from_arrow(pa.Table.from_batches([rows]))
    columns = []
    for number, text in enumerate(texts):
        try:
            columns.append(frame.parse_sql_expr(text).alias(str(number)))
        except Exception as error:  # DataFusion's own have no class of theirs
            raise InvalidCallError(f"{text!r} is no expression over the row: {error}") from error
    try:
        found = frame.select(*columns).to_arrow_table()
    except Exception as error:
        raise InvalidCallError(f"{list(texts)} can't be evaluated: {error}") from error
    if found.num_rows != rows.num_rows:
        raise InvalidCallError(f"{list(texts)} are not expressions over one row each")
    return [one_array(column) for column in found.columns]
