"""Texts read as values of a column's type."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import is_list, type_text
from exec_nodes.arrow.decimals import read_decimals
from exec_nodes.base.errors import InvalidCallError

Column: TypeAlias = pa.Array | pa.ChunkedArray

_UNIT_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
# Matches the end of a text with a time zone.
_ZONE = r"[ T]\d\d.*(?:Z|[+-]\d\d(?::?\d\d)?)$"
_FORMS = (
    (pa.types.is_time, "a time of day, such as '12:30:00'"),
    (pa.types.is_date, "a date, such as '2026-01-31'"),
    (pa.types.is_boolean, "'true' or 'false'"),
    (is_list, "a list, such as [0.5, 1]"),
    (pa.types.is_struct, "a struct, such as {a: 1}"),
)


def has_texts(kind: pa.DataType) -> bool:
    """Whether values of a type are given as texts too, where texts are not converted to all types:
    dates, times and timestamps in ISO 8601, and decimals."""
    return pa.types.is_decimal(kind) or (
        pa.types.is_temporal(kind) and not pa.types.is_duration(kind)
    )


def read_texts(texts: Column, field: pa.Field, *, local: bool = False) -> Column:
    """Texts as a field's type. With `local`, a time without a zone is one in the column's zone.

    Raises InvalidCallError naming the first invalid text.
    """
    kind = field.type
    if pa.types.is_string_view(texts.type):  # Arrow reads no views
        texts = pc.cast(texts, pa.large_string())
    try:
        return _read(texts, kind, local)
    except pa.ArrowException as error:
        wrong = _first_wrong(texts.drop_null(), kind, local)
        raise InvalidCallError(
            f"column {field.name!r}: {wrong!r} is not {type_text(kind)}: give {_form(kind, local)}"
        ) from error


def _first_wrong(texts: Column, kind: pa.DataType, local: bool) -> str:
    """The first text that is not of a type; there must be one."""
    while len(texts) > 1:
        half = len(texts) // 2
        try:
            _read(texts[:half], kind, local)
            texts = texts[half:]
        except pa.ArrowException:
            texts = texts[:half]
    return str(texts[0])


def _form(kind: pa.DataType, local: bool) -> str:
    """The way to write values of a type, for messages."""
    if pa.types.is_integer(kind):
        range_ = np.iinfo(kind.to_pandas_dtype())
        return f"a whole number from {range_.min} to {range_.max}"
    if pa.types.is_floating(kind):
        return f"a number up to {np.finfo(kind.to_pandas_dtype()).max:.1e}"
    if pa.types.is_decimal(kind):
        return f"a number of up to {kind.precision} digits, {kind.scale} of them after the point"
    if pa.types.is_timestamp(kind):
        years = " from 1678 to 2261" if kind.unit == "ns" else ""
        if local:
            zone = f", unambiguous in timezone {kind.tz!r}, or one with its offset"
            return f"a time{years}, such as '2026-01-31 12:30:00'{zone if kind.tz else ''}"
        places = _UNIT_DIGITS[kind.unit]
        most = f"with up to {places} digits after the seconds" if places else "in whole seconds"
        if kind.tz:
            return f"a time{years} with its offset, such as '2026-01-31T12:30:00Z', {most}"
        return f"a time{years} without a zone, such as '2026-01-31T12:30:00', {most}"
    return next(
        (form for is_kind, form in _FORMS if is_kind(kind)), "a value of that type, or a CAST"
    )


def _read(texts: Column, kind: pa.DataType, local: bool) -> Column:
    if pa.types.is_time(kind):  # Arrow reads a time only after a date
        dated = pc.binary_join_element_wise("1970-01-01", pc.cast(texts, pa.string()), " ")
        return pc.cast(pc.cast(dated, pa.timestamp(kind.unit)), kind)
    if local and pa.types.is_timestamp(kind) and kind.tz is not None:
        zoned, none = pc.match_substring_regex(texts, _ZONE), pa.scalar(None, texts.type)
        others = pc.cast(pc.if_else(zoned, none, texts), pa.timestamp(kind.unit))
        times = pc.cast(pc.if_else(zoned, texts, none), kind)
        return pc.coalesce(times, pc.assume_timezone(others, kind.tz))
    if pa.types.is_decimal(kind):
        return read_decimals(texts, kind)
    read = pc.cast(texts, kind)
    if pa.types.is_floating(kind):
        _check_finite(texts, read)
    return read


def _check_finite(texts: Column, read: Column) -> None:
    """Raise ArrowInvalid for a text with so many digits that it was read as infinite."""
    named = pc.match_substring_regex(pc.cast(texts, pa.string()), "inf", ignore_case=True)
    wrong = texts.filter(pc.and_not(pc.is_inf(pc.cast(read, pa.float64())), named))
    if len(wrong):
        raise pa.ArrowInvalid(f"{wrong[0].as_py()!r} is above the largest {read.type}")
