"""Bringing a caller's values into a column's type only where every value stays equal.

Arrow's own conversions cut off fractions, parts of a second and time zones without a word; a key
or a value that was cut would silently be another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain
from math import isfinite
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import flat, is_binary, is_list, is_text, type_text
from exec_nodes.arrow.decimals import read_decimals
from exec_nodes.arrow.nested import inner_arrays, inner_fields, with_inner_arrays
from exec_nodes.arrow.rounding import is_infinite, rounded
from exec_nodes.arrow.struct_fields import check_type, check_values
from exec_nodes.arrow.validate import validated
from exec_nodes.base.errors import InvalidCallError

Column: TypeAlias = pa.Array | pa.ChunkedArray
# A value that would change, and the reason.
_Change: TypeAlias = tuple[Any, str]

_ENDS = 150
# The number of digits of the largest uint64.
_DIGITS = 20
_CONVERSION_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)
_BOOLEANS = frozenset({bool, np.bool_})
_UNCHECKED = frozenset({int, type(None)})
# Types for which a number is refused, in Arrow too: it has no unit and no time zone.
_PYTHON_TIMES = {
    "date": "a datetime.date",
    "timestamp": "a datetime.datetime, such as datetime.fromtimestamp(seconds, UTC) or "
    "datetime.fromisoformat(text)",
    "duration": "a datetime.timedelta",
    "time": "a datetime.time",
}


def exact_values(values: Any, field: pa.Field, *, fill: bool = False) -> Column:
    """One column of a caller's values, of any form, in the field's type.

    Arrow columns are cast as by `exact_cast`. Python and numpy floats may be rounded to a
    float32 or float16 column, which have no Python form, but not to infinity. Structs have all
    the fields of the type, or, with `fill`, those that they lack become null.

    Raises InvalidCallError naming the column, the value and the remedy.
    """
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return exact_cast(values, field, fill=fill)
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidCallError(
            f"column {field.name!r}: {_brief(repr(values))} is not a list of values of type "
            f"{field.type}: put it into a list, as "
            f"{{{field.name!r}: [value]}}, or give rows as a list of dicts, as "
            f"[{{{field.name!r}: value}}]"
        )
    if str(getattr(values, "dtype", "object")) != "object":
        return exact_cast(_of_arrays(values, field), field, rounding=True, fill=fill)
    if not isinstance(values, Sequence | np.ndarray) and not hasattr(values, "dtype"):
        values = list(values)
    try:
        array = pa.array(values, field.type)
        change = _change(list(values), field.type)
    except _CONVERSION_ERRORS as error:
        value, reason = _unconvertible(list(values), field.type, str(error))
        raise _refusal(value, field, reason) from error
    if change is not None:
        raise _refusal(change[0], field, change[1])
    check_values(values, field, fill=fill)
    return array


def exact_cast(
    column: Column, field: pa.Field, *, rounding: bool = False, fill: bool = False
) -> Column:
    """An Arrow column in the field's type; the column itself when it has that type.

    `rounding` lets floats become the nearest float of fewer bits, `fill` sets fields to null that
    structs lack. Raises InvalidCallError naming
    the column and the value when a value would change, or is not valid in the column's type.
    """
    column = validated(column, field.name)
    source, target = column.type, field.type
    if source == target:
        return column
    if column.null_count == len(column):
        return pa.nulls(len(column), target)
    if not same_kind(source, target):
        raise InvalidCallError(
            f"column {field.name!r} needs {target}, not {source}: cast it yourself"
            + _zone_remedy(source, target)
        )
    check_type(source, field, fill=fill)
    if has_dictionaries(source) and not has_dictionaries(target):
        column = decoded(column)
        source = column.type
    if (type_ := _storable_type(source, target)) != source:
        column, source = pc.cast(column, type_), type_
    if rounding and inner_fields(source):
        column = rounded(column, target, field.name)
        source = column.type
    try:
        cast = _nearest(column, target) if pa.types.is_decimal(source) else pc.cast(column, target)
        back = _nearest(cast, source)
    except pa.ArrowException as error:
        raise InvalidCallError(
            f"column {field.name!r} can't be cast from {source} to {target}: {error}; "
            "cast it yourself if that is meant"
        ) from error
    if rounding and pa.types.is_floating(source) and pa.types.is_floating(target):
        back = pc.if_else(is_infinite(cast), back, column)
    if not _equal(back, column):
        row, value = _first_difference(back, column)
        raise InvalidCallError(
            f"column {field.name!r} needs {target}, and the {source} value {value} in row {row} "
            "would change: cast it yourself if that is meant"
        )
    return cast


def _nearest(column: Column, kind: pa.DataType) -> Column:
    """A column in another type. Arrow makes 100.10000000000001 of the decimal 100.1, but reads its
    text as the nearest float."""
    kinds = (column.type, kind)
    if any(map(pa.types.is_decimal, kinds)) and any(map(pa.types.is_floating, kinds)):
        column = pc.cast(column, pa.string())
        if pa.types.is_decimal(kind):
            return read_decimals(column, kind)
    return pc.cast(column, kind)


def _storable_type(source: pa.DataType, target: pa.DataType) -> pa.DataType:
    """The type, with the target's where it says null, as nothing can be cast back to null, and with
    decimals for integers that become decimals, as Arrow goes by the most digits of the integer type
    and not by the value."""
    if pa.types.is_null(source):
        return target
    if pa.types.is_integer(source) and pa.types.is_decimal(target):
        return pa.decimal128(_DIGITS)
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        fields = [
            field
            if (place := target.get_field_index(field.name)) < 0
            else field.with_type(_storable_type(field.type, target.field(place).type))
            for field in source
        ]
        return pa.struct(fields)
    if pa.types.is_map(source) and pa.types.is_map(target):
        item = source.item_field.with_type(_storable_type(source.item_type, target.item_type))
        return pa.map_(source.key_field, item, keys_sorted=source.keys_sorted)
    if is_list(target) and (pa.types.is_list(source) or pa.types.is_large_list(source)):
        inner = source.value_field.with_type(_storable_type(source.value_type, target.value_type))
        return pa.list_(inner) if pa.types.is_list(source) else pa.large_list(inner)
    return source


def _of_arrays(values: Any, field: pa.Field) -> Column:
    try:
        if hasattr(values, "__arrow_c_stream__"):
            return pa.chunked_array(values)
        return pa.array(values)
    except _CONVERSION_ERRORS as error:
        raise _refusal(values, field, str(error)) from error


def _unconvertible(values: list[Any], kind: pa.DataType, reason: str) -> _Change:
    for value in values:
        try:
            pa.array([value], kind)
        except _CONVERSION_ERRORS as error:
            return value, str(error)
    return values, reason


def _refusal(value: Any, field: pa.Field, reason: str) -> InvalidCallError:
    shown = repr(value)
    # Arrow's reason adds nothing about a value that does not fit.
    why = "" if reason.startswith(f"Could not convert {shown} with") else f": {_brief(reason)}"
    if isinstance(value, str) and pa.types.is_temporal(field.type):
        why = f": a text is not a time here: give {_PYTHON_TIMES[_time_kind(field.type)]}"
    return InvalidCallError(
        f"column {field.name!r}: {_brief(shown)} is not {type_text(field.type)}{why}"
    )


def _brief(text: str) -> str:
    """Without the middle of a long text: Arrow's reasons repeat the value too."""
    return text if len(text) <= 2 * _ENDS else f"{text[:_ENDS]}...{text[-_ENDS:]}"


# Python values


def _change(values: list[Any], kind: pa.DataType) -> _Change | None:
    """The first of convertible `values`, nested ones included, that `kind` would change."""
    if pa.types.is_dictionary(kind):
        return _change(values, kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _change(values, kind.storage_type)
    if is_list(kind):
        inner = (v for v in values if isinstance(v, Iterable))
        return _change(list(chain.from_iterable(inner)), kind.value_type)
    if pa.types.is_struct(kind):
        rows = [dict(v) for v in values if isinstance(v, Iterable)]
        changes = (_change([row.get(f.name) for row in rows], f.type) for f in kind)
        return next((change for change in changes if change), None)
    if pa.types.is_map(kind):
        maps = (v.items() if isinstance(v, Mapping) else v for v in values if _is_present(v))
        pairs = list(chain.from_iterable(maps))
        return _change([k for k, _ in pairs], kind.key_type) or _change(
            [v for _, v in pairs], kind.item_type
        )
    types = set(map(type, values))
    if pa.types.is_temporal(kind) and (number := _number(values)) is not None:
        return number, f"a number is not a time here: give {_PYTHON_TIMES[_time_kind(kind)]}"
    if not types & _BOOLEANS:
        return _leaf_change(values, types - _UNCHECKED, kind)
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return None
    return next(v for v in values if type(v) in _BOOLEANS), "it is a bool, give a number"


def _leaf_change(values: list[Any], types: set[type], kind: pa.DataType) -> _Change | None:
    if not types:
        return None
    if pa.types.is_integer(kind):
        return _cut_integer(values, kind)
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        return _overflow(values, kind)
    if pa.types.is_temporal(kind):
        return _cut_time(values, types, kind)
    return None


def _number(values: list[Any]) -> Any:
    """The first number; None for none. NaN and NaT are nulls."""
    numbers = (v for v in values if isinstance(v, int | float | Decimal | np.number | np.bool_))
    return next((v for v in numbers if not isinstance(v, np.timedelta64) and v == v), None)


def _time_kind(kind: pa.DataType) -> str:
    names = ("date", "timestamp", "duration")
    return next((name for name in names if getattr(pa.types, f"is_{name}")(kind)), "time")


def _cut_integer(values: list[Any], kind: pa.DataType) -> _Change | None:
    returned = pa.array(values, kind, from_pandas=True).to_pylist()
    if returned == values:
        return None
    pairs = zip(values, returned, strict=True)
    return next(((v, "round it") for v, h in pairs if h is not None and v != h), None)


def _overflow(values: list[Any], kind: pa.DataType) -> _Change | None:
    infinite = is_infinite(pa.array(values, kind, from_pandas=True))
    if not pc.any(infinite).as_py():
        return None
    rows = pc.indices_nonzero(infinite).to_pylist()
    return next(((values[i], "it is too large") for i in rows if isfinite(values[i])), None)


def _cut_time(values: list[Any], types: set[type], kind: pa.DataType) -> _Change | None:
    if pa.types.is_date(kind):
        if types == {date}:
            return None
        moments = (v for v in values if isinstance(v, datetime) and v == v)  # except NaT
        return next(((v, "give a date without a time of day, v.date()") for v in moments), None)
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        zoned = getattr(kind, "tz", None) is not None
        reason = "give it a time zone" if zoned else "convert it and drop its time zone"
        clocks = (v for v in values if isinstance(v, datetime | time) and v == v)
        for moment in clocks:
            if (moment.tzinfo is not None) != zoned:
                return moment, reason
    return _cut_second(values, kind)


def _cut_second(values: list[Any], kind: pa.DataType) -> _Change | None:
    unit = getattr(kind, "unit", "ns")
    if unit == "ns":
        return None
    reason = f"the column counts whole {unit}, round it"
    for value in values:  # only pandas' types have them
        # NaT's are NaN.
        if getattr(value, "nanosecond", 0) > 0 or getattr(value, "nanoseconds", 0) > 0:
            return value, reason
    if unit == "us":
        return None
    # Arrow takes numpy's values in the column's unit only.
    moments = [v for v in values if not isinstance(v, np.generic) and _is_present(v)]
    fine = pa.array(moments, _in_microseconds(kind), from_pandas=True)
    cut = pa.array(moments, kind, from_pandas=True).cast(fine.type)
    if cut.equals(fine):
        return None
    return moments[pc.index(pc.not_equal(cut, fine), True).as_py()], reason


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.duration("us") if pa.types.is_duration(kind) else pa.time64("us")


def _is_present(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and value != value)


# Arrow columns


def same_kind(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether `exact_cast` tries: whether some value of `source` is one of `target` too."""
    if source == target or pa.types.is_null(source):
        return True
    if pa.types.is_dictionary(source):
        return same_kind(source.value_type, target)
    if pa.types.is_dictionary(target):
        return same_kind(source, target.value_type)
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        # With a zone it is an instant, without one a wall clock: no value is the same in both.
        return (source.tz is None) == (target.tz is None)
    if is_list(source) and is_list(target):
        return same_kind(source.value_type, target.value_type)
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        returned = {field.name: field.type for field in source}
        return all(same_kind(returned.get(field.name, pa.null()), field.type) for field in target)
    if pa.types.is_map(source) and pa.types.is_map(target):
        return same_kind(source.key_type, target.key_type) and same_kind(
            source.item_type, target.item_type
        )
    return any(of(source) and of(target) for of in _KINDS)


def _zone_remedy(source: pa.DataType, target: pa.DataType) -> str:
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        return ", giving it a time zone" if source.tz is None else ", dropping its time zone"
    return ""


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


_KINDS = (
    _is_number,
    is_text,
    is_binary,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_duration,
)


def _equal(a: Column, b: Column) -> bool:
    if a.equals(b):
        return True
    # NaN differs from itself.
    return _first_difference(a, b)[0] < 0


def _first_difference(a: Column, b: Column) -> tuple[int, object]:
    if not pa.types.is_floating(a.type):
        pairs = zip(a.to_pylist(), b.to_pylist(), strict=True)
        return next(
            ((row, y) for row, (x, y) in enumerate(pairs) if x != y and repr(x) != repr(y)),
            (-1, None),
        )
    if pa.types.is_float16(a.type):
        a, b = pc.cast(a, pa.float64()), pc.cast(b, pa.float64())
    same = pc.or_(pc.equal(a, b), pc.and_(pc.is_nan(a), pc.is_nan(b)))
    row = pc.index(pc.fill_null(same, True), False).as_py()
    return row, b[row].as_py() if row >= 0 else None


def has_dictionaries(kind: pa.DataType) -> bool:
    """Whether values of a type, or parts of them, are dictionary-encoded."""
    return pa.types.is_dictionary(kind) or any(
        has_dictionaries(field.type) for field in inner_fields(kind)
    )


def decoded(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A column with the values in place of their dictionaries, inside nested types too."""
    if isinstance(column, pa.ChunkedArray):
        chunks = [_decoded(chunk) for chunk in column.chunks]
        return pa.chunked_array(chunks, None if chunks else _decoded(column.combine_chunks()).type)
    return _decoded(column)


def _decoded(array: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        # Arrow takes nothing from views.
        values = flat(array.dictionary)
        return pa.DictionaryArray.from_arrays(array.indices, values).dictionary_decode()
    if not has_dictionaries(array.type):
        return array
    inner = [_decoded(part) for part in inner_arrays(array)]
    pairs = zip(inner_fields(array.type), inner, strict=True)
    return with_inner_arrays(array, [field.with_type(part.type) for field, part in pairs], inner)
