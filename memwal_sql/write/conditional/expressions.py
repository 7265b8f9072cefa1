"""SQL expressions over the rows of a write: the existing row, `t`, and the given row, `s`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import datafusion
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import is_json
from exec_nodes.arrow.casts import exact_cast
from exec_nodes.arrow.nested import inner_fields
from exec_nodes.base.brief import shortened
from exec_nodes.base.interrupts import is_native
from exec_nodes.keys.keys import one_array
from memwal_sql.arguments import check_expression, date_remedy, literal, quoted
from memwal_sql.errors import InvalidCallError
from memwal_sql.write.conditional.groups import groups, named, whole
from memwal_sql.write.ingest.json_texts import stored_json

# Rows by the names that qualify their columns.
Sides = Mapping[str, pa.RecordBatch]

_PLAIN = ""
_PLACE = "the place of the row"
_UNKNOWN = re.compile(
    r"No field named (?P<column>.+?)\.(?:\s|$)|Field (?P<field>.+?) not found in struct"
)
_ONE_ROW = "an expression is over one row, without aggregates and windows"


class Expressions:
    """A condition, and the new values of columns where it is true, evaluated by DataFusion.

    Names mean DataFusion's: in `pairs`, `t.n` is the column `n` of the existing row and `s.n` of
    the row given; in `plain` rows, `n` is the column.
    """

    def __init__(self, schema: pa.Schema, when: str | None, columns: Mapping[str, str]) -> None:
        """Raises InvalidCallError for an expression that is not a text, and for unknown columns."""
        texts = dict(columns) if when is None else {"the condition": when, **columns}
        for name, text in texts.items():
            if not isinstance(text, str):
                raise InvalidCallError(f"{name}: {text!r} is not a SQL expression given as text")
        unknown = sorted(set(columns) - set(schema.names))
        if unknown:
            raise InvalidCallError(f"the table has no columns {unknown}; it has {schema.names}")
        self._schema = schema
        self.when = when
        self.columns = dict(columns)

    def __bool__(self) -> bool:
        return self.when is not None or bool(self.columns)

    def evaluate(self, sides: Sides) -> tuple[npt.NDArray[np.int64], dict[str, pa.Array]]:
        """The positions of the rows for which the condition is true, ascending, and the columns'
        values for these, in the columns' types.

        Raises InvalidCallError for an expression that can't be evaluated or is not over a single
        row, and for a value that does not fit. Expressions are checked even without rows.
        """
        condition, values = self.when, dict[str, pa.Array]()
        places = np.arange(next(iter(sides.values())).num_rows)
        for group in groups(self.columns):
            found = self._evaluated(sides, condition, group)
            if condition is not None:
                places, condition = found.column(0).to_numpy(), None
                sides = {name: rows.take(pa.array(places)) for name, rows in sides.items()}
            for name, column in zip(group, found.columns[1:], strict=True):
                values[name] = _fitting(one_array(column), self._schema.field(name))
        return places, {name: values[name] for name in self.columns}

    def _evaluated(
        self, sides: Sides, condition: str | None, columns: Mapping[str, str]
    ) -> pa.Table:
        """The positions of the rows that meet a condition, ascending, and the values of
        expressions."""
        texts = columns if condition is None else {"the condition": condition, **columns}
        rows = _as_columns(sides, texts.values())
        context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
        numbered = pa.Table.from_batches([rows.append_column(_PLACE, np.arange(rows.num_rows))])
        frame = context.from_arrow(numbered)
        parsed = {name: self._parsed(frame, text) for name, text in columns.items()}
        met = None if condition is None else self._parsed(frame, condition)
        place = datafusion.col(f'"{_PLACE}"')
        aliases = [expression.alias(f"value of {name}") for name, expression in parsed.items()]
        shown = shortened(", ".join(f"{name}: {text!r}" for name, text in texts.items()))
        try:
            frame = (frame if met is None else frame.filter(met)).select(place, *aliases)
            if _nodes(frame.logical_plan()) != (2 if condition is None else 3):
                raise InvalidCallError(f"{shown}: {_ONE_ROW}")
            result = frame.to_arrow_table()
        except Exception as error:
            if not is_native(error):
                raise
            unknown = unknown_column(str(error), self._schema)
            reason = unknown or shortened(str(error)) + date_remedy(str(error))
            if "AggregateFunction" in reason:
                reason = _ONE_ROW
            raise InvalidCallError(f"{shown} can't be evaluated: {reason}") from error
        return result.take(pc.sort_indices(result.column(0)))

    def _parsed(self, frame: datafusion.DataFrame, text: str) -> Any:
        check_expression(text)
        try:
            return frame.parse_sql_expr(text)
        except Exception as error:
            if not is_native(error):
                raise
            reason = unknown_column(str(error), self._schema) or shortened(str(error))
            if "No field named" in str(error) and frame.schema().names[0] == "t":
                reason = "write t.name for a column of the existing row, and s.name for one given"
            raise InvalidCallError(
                f"{text!r} is not an expression over the row: {reason}"
            ) from error


def unknown_column(message: str, columns: pa.Schema) -> str | None:
    """The reason and the remedy where an error of DataFusion names a column, or a field in one,
    that is not there; None for any other error."""
    match = _UNKNOWN.search(message)
    if match is None:
        return None
    name = match["field"] or match["column"].rpartition(".")[2].strip('"')
    written = [each for each in _names(columns) if each != name and each.lower() == name.lower()]
    if written:
        return (
            f"there is no column {name!r}: names without double quotes are read in lower case, "
            f"write {quoted(written[0])}"
        )
    return (
        f"there is no column {shortened(name)!r}; the row has {columns.names}, and a text is in "
        f"single quotes: {literal(shortened(name))}"
    )


def _names(fields: Iterable[pa.Field]) -> Iterator[str]:
    """The names of columns, and of the fields in them."""
    for field in fields:
        yield field.name
        yield from _names(inner_fields(field.type))


def plain(rows: pa.RecordBatch) -> Sides:
    """Rows whose columns have their own names in expressions."""
    return {_PLAIN: rows}


def pairs(old: pa.RecordBatch, new: pa.RecordBatch | None = None) -> Sides:
    """Existing rows, as `t`, next to given ones, as `s`."""
    return {"t": old} if new is None else {"t": old, "s": new}


def _as_columns(sides: Sides, texts: Collection[str]) -> pa.RecordBatch:
    """The rows as columns of a frame: those that expressions name, or one of each side."""
    narrow, rows_as_such = {}, whole(texts)
    for side, rows in sides.items():
        columns = rows.schema.names
        used = columns if side in rows_as_such else named(columns, texts)
        narrow[side] = rows.select(used or columns[:1])
    if _PLAIN in narrow:
        return narrow[_PLAIN]
    structs = [rows.to_struct_array() for rows in narrow.values()]
    return pa.RecordBatch.from_arrays(structs, list(narrow))


def _nodes(plan: Any) -> int:
    return 1 + sum(_nodes(node) for node in plan.inputs())


def _fitting(values: pa.Array, field: pa.Field) -> pa.Array:
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), field.type)
    fitting = one_array(exact_cast(values, field, rounding=True))
    return stored_json(fitting, field.name) if is_json(field.type) else fitting
