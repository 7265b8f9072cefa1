"""Computed values in the types of the columns that they are written to."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import is_text
from exec_nodes.arrow.casts import Column, exact_cast
from exec_nodes.arrow.texts import read_texts
from exec_nodes.keys.keys import one_array
from memwal_sql.errors import InvalidCallError

_UNITS = ["s", "ms", "us", "ns"]
# Types whose values have one text, which says all of the value.
_WRITTEN_AS_TEXT = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_date)


def fitted(column: Column, field: pa.Field) -> Column:
    """A column of a query in a field's type.

    Texts are parsed as the type, and whole numbers, booleans and dates become texts. All other
    values stay equal, but floats may be rounded to fewer bits, and times are cut to the unit, as
    `now()` has nanoseconds. Dates and times without a zone are in the column's zone. Computed
    values of an extension type are taken as the storage type.

    Raises InvalidCallError naming the column and a value that does not fit.
    """
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType) and not isinstance(column.type, type(kind)):
        stored = fitted(column, field.with_type(kind.storage_type))
        return pa.ExtensionArray.from_storage(kind, one_array(stored))
    if is_text(column.type) and not is_text(kind) and column.null_count < len(column):
        column = read_texts(column, field, local=True)
    try:
        if pa.types.is_timestamp(kind):
            column = _timestamps(column, kind)
    except pa.ArrowException as error:
        raise InvalidCallError(f"column {field.name!r}: {error}") from error
    if is_text(kind) and any(is_kind(column.type) for is_kind in _WRITTEN_AS_TEXT):
        return pc.cast(column, kind)
    return exact_cast(column, field, rounding=True)


def fitted_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with every column fitted, in the order of the schema."""
    columns = [fitted(c, field) for c, field in zip(rows.columns, schema, strict=True)]
    return pa.table(columns, schema=schema)


def _timestamps(times: Column, kind: pa.DataType) -> Column:
    if pa.types.is_date(times.type):
        times = pc.cast(times, pa.timestamp(kind.unit))
    if not pa.types.is_timestamp(times.type):
        return times
    if kind.tz is not None and times.type.tz is None:
        times = pc.assume_timezone(times, kind.tz)
    if _UNITS.index(times.type.unit) > _UNITS.index(kind.unit):
        times = pc.cast(times, pa.timestamp(kind.unit, times.type.tz), safe=False)
    return times
