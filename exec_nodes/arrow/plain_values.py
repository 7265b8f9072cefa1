"""Plain Python values, those without parts, as Arrow columns: the Python types that a column takes,
and the values of these that it would change."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import is_binary, is_text
from exec_nodes.arrow.casts import INTEGER_DIGITS, Column, exact_cast
from exec_nodes.arrow.rounding import is_infinite
from exec_nodes.arrow.texts import read_texts

CONVERSION_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)
_ENDS = 150
_UUID_BYTES = 16
_NONE = type(None)
_WHOLE = (int, np.integer)
_NUMBERS = (*_WHOLE, float, np.floating)
_BOOLEANS = (bool, np.bool_)
_BYTES = (bytes, bytearray, memoryview)
# Python's own types of times, which have no nanoseconds.
_TIMES = frozenset({date, datetime, time, timedelta, _NONE})
_PYTHON_TIMES = {
    "date": "a datetime.date",
    "timestamp": "a datetime.datetime, such as datetime.fromtimestamp(seconds, UTC) or "
    "datetime.fromisoformat(text)",
    "duration": "a datetime.timedelta",
    "time": "a datetime.time",
}


# A text for which `int` or `float` may be meant.
_NUMBER = re.compile(r"\s*[+-]?[0-9.][0-9.eE+-]*\s*")


class UnfitError(Exception):
    """A value that a type, the column's if it is None, does not have, and the reason, which may be
    empty."""

    def __init__(self, value: Any, reason: str = "", kind: pa.DataType | None = None) -> None:
        super().__init__(value, reason, kind)
        self.value = value
        self.reason = reason
        self.kind = kind


class _Taken(NamedTuple):
    """The Python types whose values a kind of column takes, and those among them that it does
    not."""

    types: tuple[type, ...]
    but: tuple[type, ...] = ()


# numpy counts its timedelta64 among the integers.
_TAKEN: Sequence[tuple[Callable[[pa.DataType], bool], _Taken]] = (
    (pa.types.is_null, _Taken(())),
    (pa.types.is_boolean, _Taken(_BOOLEANS)),
    (pa.types.is_integer, _Taken((*_NUMBERS, Decimal), (bool, np.timedelta64))),
    (pa.types.is_floating, _Taken(_NUMBERS, (bool, np.timedelta64))),
    (pa.types.is_decimal, _Taken((*_WHOLE, Decimal, str), (bool, np.timedelta64))),
    (is_text, _Taken((str,))),
    (is_binary, _Taken(_BYTES)),
    (pa.types.is_date, _Taken((date, np.datetime64, str), (datetime,))),
    (pa.types.is_timestamp, _Taken((datetime, np.datetime64, str))),
    (pa.types.is_time, _Taken((time, str))),
    (pa.types.is_duration, _Taken((timedelta, np.timedelta64))),
)


def without_missing(value: Any) -> Any:
    """A value, or a list of values, with None in the place of NaT, and of NA of pandas."""
    if isinstance(value, list | tuple):
        return [without_missing(item) for item in value]
    return None if is_nat(value) or is_na(type(value)) else value


def plain_column(values: list[Any], types: set[type], field: pa.Field) -> Column:
    """Values without parts, of these Python types, in a field's type. Raises UnfitError, or
    InvalidCallError for texts that are read."""
    kind = field.type
    taken = next((taken for is_kind, taken in _TAKEN if is_kind(kind)), _Taken((object,)))
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width == _UUID_BYTES:
        taken = _Taken((*taken.types, UUID))
    wrong = {t for t in types if not issubclass(t, taken.types) or issubclass(t, taken.but)}
    if wrong:
        value = next(value for value in values if type(value) in wrong)
        raise UnfitError(value, _reason(value, kind))
    if pa.types.is_decimal(kind):
        return _read([v if v is None else _decimal_text(v) for v in values], field)
    if pa.types.is_temporal(kind) and any(issubclass(t, str | np.generic) for t in types):
        return _mixed_times(values, field)
    if pa.types.is_float16(kind):  # Arrow takes none of numpy's wider floats for it
        values = [float(v) if isinstance(v, np.floating) else v for v in values]
    if any(issubclass(t, Decimal) for t in types):
        _check_digits(values)
    try:
        made = pa.array(values, kind)
        _check_plain(values, types, kind)
    except CONVERSION_ERRORS as error:
        raise UnfitError(*_unconvertible(values, kind, str(error))) from error
    return made


def _mixed_times(values: list[Any], field: pa.Field) -> Column:
    """Times of which some are texts, or of numpy."""
    others = [None if isinstance(value, str | np.generic) else value for value in values]
    parts = [plain_column(others, set(map(type, others)) - {_NONE}, field)]
    if any(isinstance(value, str) for value in values):
        parts.append(_read([v if isinstance(v, str) else None for v in values], field))
    scalars = [value if isinstance(value, np.generic) else None for value in values]
    for dtype in {value.dtype for value in scalars if value is not None}:
        chosen = [
            value if value is not None and value.dtype == dtype else None for value in scalars
        ]
        parts.append(_of_numpy(chosen, dtype, field))
    return pc.coalesce(*parts)


def _of_numpy(scalars: list[Any], dtype: Any, field: pa.Field) -> Column:
    """Dates, times or durations of numpy, of one unit."""
    try:
        times = pa.array(np.array(["NaT" if v is None else v for v in scalars], dtype))
    except CONVERSION_ERRORS as error:
        raise UnfitError(next(v for v in scalars if v is not None), str(error)) from error
    return exact_cast(times, field)


def _read(texts: list[str | None], field: pa.Field) -> Column:
    return read_texts(pa.array(texts, pa.string()), field)


def present(values: list[Any], kind: pa.DataType) -> tuple[list[Any], set[type]]:
    """Values, with Arrow's scalars as Python values and None for those that are missing, and the
    Python types of the others."""
    types = set(map(type, values))
    if any(issubclass(t, pa.Scalar) for t in types):
        values = [value.as_py() if isinstance(value, pa.Scalar) else value for value in values]
        types = set(map(type, values))
    if any(map(is_na, types)):
        values = [None if is_na(type(value)) else value for value in values]
        types = set(map(type, values))
    if pa.types.is_temporal(kind) and any(map(_may_be_nat, types)):
        values = [None if is_nat(value) else value for value in values]
        types = set(map(type, values))
    types.discard(_NONE)
    return values, types


def is_na(kind: type) -> bool:
    """Whether it is the type of the missing value of pandas."""
    return kind.__name__ == "NAType" and kind.__module__.startswith("pandas.")


def _may_be_nat(kind: type) -> bool:
    return kind.__name__ == "NaTType" or issubclass(kind, np.datetime64 | np.timedelta64)


def is_nat(value: Any) -> bool:
    """Whether it is the missing time of pandas or numpy."""
    return _may_be_nat(type(value)) and bool(value != value)


def _decimal_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return Decimal.__str__(value) if isinstance(value, Decimal) else str(int(value))
    except ValueError as error:  # Python writes no integer of more than some thousand digits
        raise UnfitError(value) from error


def _check_digits(values: list[Any]) -> None:
    """Refuse decimals for which Python would make an integer of any number of digits."""
    for value in values:
        if isinstance(value, Decimal) and value.is_finite() and value.adjusted() > INTEGER_DIGITS:
            raise UnfitError(value)


def _check_plain(values: list[Any], types: set[type], kind: pa.DataType) -> None:
    """Refuse values that Arrow has converted, and changed."""
    if types == {int}:
        return
    if pa.types.is_integer(kind):
        _check_integers(values, kind)
    elif pa.types.is_float16(kind) or pa.types.is_float32(kind):
        _check_finite(values, kind)
    elif pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
        if not pa.types.is_duration(kind):
            _check_zones(values, getattr(kind, "tz", None) is not None)
        _check_seconds(values, types, kind)


def _check_integers(values: list[Any], kind: pa.DataType) -> None:
    returned = pa.array(values, kind).to_pylist()
    if returned != values:
        pairs = zip(values, returned, strict=True)
        wrong = [v for v, back in pairs if v is not None and v != back]
        if wrong:
            raise UnfitError(wrong[0], "round it")


def _check_finite(values: list[Any], kind: pa.DataType) -> None:
    infinite = is_infinite(pa.array(values, kind))
    for row in pc.indices_nonzero(pc.fill_null(infinite, False)).to_pylist():
        if isfinite(values[row]):
            raise UnfitError(values[row], "it is too large")


def _check_zones(values: list[Any], zoned: bool) -> None:
    zones = {getattr(value, "tzinfo", None) for value in values if value is not None}
    if (None not in zones) if zoned else zones == {None}:
        return
    reason = (
        "give it a time zone, as value.replace(tzinfo=datetime.UTC) does"
        if zoned
        else "convert it and drop its time zone, as value.replace(tzinfo=None) does"
    )
    for value in values:
        if value is not None and (getattr(value, "tzinfo", None) is not None) != zoned:
            raise UnfitError(value, reason)


def _check_seconds(values: list[Any], types: set[type], kind: pa.DataType) -> None:
    unit = getattr(kind, "unit", "ns")
    if unit == "ns" or (unit == "us" and types <= _TIMES):
        return
    reason = f"the column counts whole {unit}, round it"
    for value in values:  # only pandas' types have them
        if getattr(value, "nanosecond", 0) > 0 or getattr(value, "nanoseconds", 0) > 0:
            raise UnfitError(value, reason)
    if unit == "us":
        return
    fine = pa.array(values, _in_microseconds(kind))
    cut = pa.array(values, kind).cast(fine.type)
    if not cut.equals(fine):
        raise UnfitError(values[pc.index(pc.not_equal(cut, fine), True).as_py()], reason)


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.duration("us") if pa.types.is_duration(kind) else pa.time64("us")


def is_plain_bytes(value: Any) -> bool:
    """Whether it is a value of a binary column."""
    return isinstance(value, _BYTES)


# Messages


def _reason(value: Any, kind: pa.DataType) -> str:
    """What to give instead of a value of another Python type."""
    if pa.types.is_date(kind) and isinstance(value, datetime):
        return "give a date without a time of day, value.date()"
    if pa.types.is_temporal(kind):
        what = "a number" if isinstance(value, (*_NUMBERS, Decimal, np.bool_)) else "it"
        what = "a text" if isinstance(value, str) else what
        return f"{what} is not a time here: give {_PYTHON_TIMES[_time_kind(kind)]}"
    if isinstance(value, _BOOLEANS) and not is_text(kind) and not is_binary(kind):
        return "it is a bool, give a number"
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if is_number and isinstance(value, str) and _NUMBER.fullmatch(value):
        name = "int" if pa.types.is_integer(kind) else "float"
        return f"a text is not a number here: give {name}({brief_value(repr(value))})"
    if isinstance(value, str) and is_binary(kind):
        return "give bytes, such as value.encode() or bytes.fromhex(value)"
    if is_text(kind):
        how = "value.decode()" if isinstance(value, bytes) else "str(value)"
        return f"give a text, such as {how}"
    return ""


def _time_kind(kind: pa.DataType) -> str:
    names = ("date", "timestamp", "duration")
    return next((name for name in names if getattr(pa.types, f"is_{name}")(kind)), "time")


def _unconvertible(values: list[Any], kind: pa.DataType, reason: str) -> tuple[Any, str]:
    for value in values:
        try:
            pa.array([value], kind)
        except CONVERSION_ERRORS as error:
            return value, str(error)
    return values, reason


def shown(value: Any) -> str:
    """A value for a message."""
    try:
        return repr(value)
    except ValueError:  # Python writes no integer of more than some thousand digits
        return f"{type(value).__name__} of very many digits"


def brief_value(text: str) -> str:
    """Without the middle of a long text: Arrow's reasons repeat the value too."""
    return text if len(text) <= 2 * _ENDS else f"{text[:_ENDS]}...{text[-_ENDS:]}"
