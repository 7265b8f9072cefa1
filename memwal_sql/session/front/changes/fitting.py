"""The values that a statement computes, in the types of the columns that they are written into."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import is_text
from exec_nodes.arrow.casts import Column, exact_cast
from exec_nodes.keys.keys import one_array
from memwal_sql.errors import InvalidCallError

# The end of a text with a time zone.
_ZONE = r"[ T]\d\d.*(?:Z|[+-]\d\d(?::?\d\d)?)$"
_UNITS = ["s", "ms", "us", "ns"]
# What has one text, which says all of it.
_WRITTEN_AS_TEXT = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_date)


def fitted(column: Column, field: pa.Field) -> Column:
    """A column of a query in a field's type: texts are read as that type, and
    whole numbers, booleans and dates written as texts; all else stays equal;
    floats may be rounded to fewer bits, and times are cut to the unit, as `now()` has nanoseconds.
    Dates and times without a zone are in that of the column. What expressions make of an extension
    type comes as stored.

    Raises InvalidCallError naming the column and a value that does not fit.
    """
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType) and not isinstance(column.type, type(kind)):
        stored = fitted(column, field.with_type(kind.storage_type))
        return pa.ExtensionArray.from_storage(kind, one_array(stored))
    try:
        if is_text(column.type) and not is_text(kind):
            column = _read(column, kind)
        if pa.types.is_timestamp(kind):
            column = _timestamps(column, kind)
    except pa.ArrowException as error:
        raise InvalidCallError(f"column {field.name!r}: {error}") from error
    if is_text(kind) and any(is_kind(column.type) for is_kind in _WRITTEN_AS_TEXT):
        return pc.cast(column, kind)
    return exact_cast(column, field, rounding=True)


def fitted_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same for every column, in the order of the schema."""
    columns = [fitted(c, field) for c, field in zip(rows.columns, schema, strict=True)]
    return pa.table(columns, schema=schema)


def _read(texts: Column, kind: pa.DataType) -> Column:
    if pa.types.is_time(kind):  # which Arrow reads behind a date alone
        dated = pc.binary_join_element_wise("1970-01-01", pc.cast(texts, pa.string()), " ")
        return pc.cast(pc.cast(dated, pa.timestamp(kind.unit)), kind)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        zoned, none = pc.match_substring_regex(texts, _ZONE), pa.scalar(None, texts.type)
        others = pc.cast(pc.if_else(zoned, none, texts), pa.timestamp(kind.unit))
        times = pc.cast(pc.if_else(zoned, texts, none), kind)
        return pc.coalesce(times, pc.assume_timezone(others, kind.tz))
    read = pc.cast(texts, kind)
    if pa.types.is_floating(kind):
        _check_finite(texts, read)
    return read


def _check_finite(texts: Column, read: Column) -> None:
    """Raise ArrowInvalid where a text that has too many digits was read as infinite."""
    named = pc.match_substring_regex(pc.cast(texts, pa.string()), "inf", ignore_case=True)
    wrong = texts.filter(pc.and_not(pc.is_inf(pc.cast(read, pa.float64())), named))
    if len(wrong):
        raise pa.ArrowInvalid(f"{wrong[0].as_py()!r} is above the largest {read.type}")


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
