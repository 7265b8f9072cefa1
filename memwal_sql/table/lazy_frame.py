"""A table as a lazy frame of polars: its columns, limits and conditions reach the scan."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa

from exec_nodes.arrow.arrays import is_text
from exec_nodes.keys.sql import literals
from memwal_sql.arguments import quoted

Scan = Callable[[Sequence[str] | None, str | None, int | None], pa.RecordBatchReader]

# The most of AND and OR within one another: a text of SQL may nest some 50 levels deep.
_LEVELS = 20
# Both sides order these alike; floats have NaN and -0.0.
_COMPARED = (
    pa.types.is_boolean,
    pa.types.is_date32,
    pa.types.is_integer,
    pa.types.is_timestamp,
    is_text,
)
# The SQL of each shape of condition, and how polars makes one of a column and values.
_SHAPES: Mapping[str, Callable[..., Any]] = {
    "{} = {}": operator.eq,
    "{} <> {}": operator.ne,
    "{} < {}": operator.lt,
    "{} <= {}": operator.le,
    "{} > {}": operator.gt,
    "{} >= {}": operator.ge,
    "{} BETWEEN {} AND {}": lambda column, least, most: column.is_between(least, most),
    "{} IS NULL": lambda column: column.is_null(),
    "{} IS NOT NULL": lambda column: column.is_not_null(),
}


def lazy_frame(polars: Any, schema: pa.Schema, scan: Scan) -> Any:
    """A lazy frame of the rows that `scan` gives for some columns, a condition and a limit, each
    time that it is collected."""

    def frames(
        columns: Sequence[str] | None, predicate: Any, limit: int | None, _: int | None
    ) -> Iterator[Any]:
        pushed = None
        if predicate is not None and limit is None:  # a limit comes before a predicate
            pushed = condition(predicate, schema, polars)
        for batch in scan(columns, pushed, limit):
            frame = polars.from_arrow(batch)
            yield frame if predicate is None else frame.filter(predicate)

    columns = polars.from_arrow(schema.empty_table()).schema
    return import_module("polars.io.plugins").register_io_source(frames, schema=columns)


def condition(predicate: Any, schema: pa.Schema, polars: Any, levels: int = _LEVELS) -> str | None:
    """A SQL condition that each row meets for which a predicate of polars is true; None if there is
    no short one.

    Polars tells what an expression is made of, but not by which operator: that is found by trying.
    """
    parts = predicate.meta.pop()[::-1]
    if len(parts) == 2 and levels:
        for word, both in (("AND", parts[0] & parts[1]), ("OR", parts[0] | parts[1])):
            if both.meta.eq(predicate):
                sides = [condition(part, schema, polars, levels - 1) for part in parts]
                texts = [f"({side})" for side in sides if side is not None]
                return f" {word} ".join(texts) if len(texts) > (word == "OR") else None
    kind = _kind(parts[0], schema) if parts else None
    if kind is None or not all(part.meta.is_literal() for part in parts[1:]):
        return None
    column = quoted(parts[0].meta.output_name())
    values = [_literals(polars.select(part).to_series(), kind) for part in parts[1:]]
    if len(parts) == 2 and values[0] and parts[0].is_in(parts[1]).meta.eq(predicate):
        return f"{column} IN ({', '.join(values[0])})"
    for shape, made in _SHAPES.items():
        is_of_shape = shape.count("{}") == len(parts) and made(*parts).meta.eq(predicate)
        if is_of_shape and all(len(texts) == 1 for texts in values):
            return shape.format(column, *(texts[0] for texts in values))
    return None


def _kind(part: Any, schema: pa.Schema) -> pa.DataType | None:
    """The type of a column that both sides compare alike; None for any other expression."""
    if not part.meta.is_column():
        return None
    kind = schema.field(part.meta.output_name()).type
    return kind if any(fits(kind) for fits in _COMPARED) else None


def _literals(values: Any, kind: pa.DataType) -> Sequence[str]:
    """The values of a series, or of the lists in it, in SQL; none if they have another type."""
    while values.dtype.is_nested():
        values = values.explode()
    array = values.drop_nulls().to_arrow()
    if is_text(array.type) and is_text(kind):
        array = array.cast(kind)
    return (literals(array) if array.type == kind else None) or ()
