"""Bringing a caller's values into a column's type only where every value stays equal.

Arrow's own conversions cut off fractions, parts of a second and time zones without a word; a key
or a value that was cut would silently be another one.
"""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import flat, is_binary, is_json, is_list, is_text
from exec_nodes.arrow.decimals import read_decimals
from exec_nodes.arrow.nested import (
    inner_arrays,
    inner_fields,
    relabelled,
    with_inner_arrays,
    with_inner_fields,
)
from exec_nodes.arrow.plain_columns import plain
from exec_nodes.arrow.rounding import is_infinite, rounded
from exec_nodes.arrow.struct_fields import check_type
from exec_nodes.arrow.texts import has_texts, read_texts
from exec_nodes.arrow.validate import validated
from exec_nodes.base.errors import InvalidCallError

Column: TypeAlias = pa.Array | pa.ChunkedArray
# The number of digits of the largest uint64.
INTEGER_DIGITS = 20


def exact_cast(
    column: Column, field: pa.Field, *, rounding: bool = False, fill: bool = False
) -> Column:
    """An Arrow column in the field's type; the column itself when it has that type.

    Values of the storage of an extension type are its values; JSON is not checked here.
    `rounding` lets floats become the nearest float of fewer bits, `fill` sets fields to null that
    structs lack. Raises InvalidCallError naming
    the column and the value when a value would change, or is not valid in the column's type.
    """
    column = plain(validated(column, field.name), field.type)
    source, target = column.type, field.type
    if source == target:
        return column
    if column.null_count == len(column):
        return pa.nulls(len(column), target)
    if isinstance(target, pa.BaseExtensionType) and same_kind(source, target.storage_type):
        inner = field.with_type(target.storage_type)
        return _extended(exact_cast(column, inner, rounding=rounding, fill=fill), target)
    if _are_read(source, target):
        column = _parts_read(decoded(column), field)
        source = column.type
        if source == target:
            return column
    if not same_kind(source, target):
        raise InvalidCallError(
            f"column {field.name!r} needs {target}, not {source}: {_remedy(source, target)}"
        )
    check_type(source, field, fill=fill)
    if has_dictionaries(source) and not has_dictionaries(target):
        column = decoded(column)
        source = column.type
    if (type_ := _storable_type(source, target)) != source:
        column, source = pc.cast(column, type_), type_
    column = _relabelled(column, _admitting_type(source, target))
    source = column.type
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


def _extended(stored: Column, kind: pa.DataType) -> Column:
    if isinstance(stored, pa.Array):
        return pa.ExtensionArray.from_storage(kind, stored)
    return pa.chunked_array([_extended(chunk, kind) for chunk in stored.chunks], kind)


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
        return pa.decimal128(INTEGER_DIGITS)
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


def _admitting_type(source: pa.DataType, target: pa.DataType) -> pa.DataType:
    """The type, with fields inside it that admit nulls where the target's do: below a null struct
    or list there are nulls in fields that admit none, and Arrow casts nothing back to these."""
    fields = [
        ours.with_type(_admitting_type(ours.type, theirs.type)).with_nullable(
            ours.nullable or theirs.nullable
        )
        for ours, theirs in _pairs(source, target)
    ]
    return source if fields == inner_fields(source) else with_inner_fields(source, fields)


def _relabelled(column: Column, kind: pa.DataType) -> Column:
    if column.type == kind:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_relabelled(chunk, kind) for chunk in column.chunks], kind)
    return relabelled(column, kind)


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


def _remedy(source: pa.DataType, target: pa.DataType) -> str:
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        if source.tz is None:
            return (
                "give it a time zone, as series.dt.tz_localize('UTC') of pandas or "
                "pyarrow.compute.assume_timezone(column, 'UTC') does"
            )
        return (
            "drop its time zone, as series.dt.tz_localize(None) of pandas or "
            "pyarrow.compute.local_timestamp(column) does"
        )
    if is_json(target):
        return "give texts, such as json.dumps(value)"
    if is_text(source) and _is_number(target):
        return (
            "cast it yourself, as series.astype of pandas or "
            f"pyarrow.compute.cast(column, '{target}') does"
        )
    return "cast it yourself"


def _are_read(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether texts of one type, nested ones included, are read as values of the other, or times
    as dates."""
    if pa.types.is_dictionary(source):
        return _are_read(source.value_type, target)
    if is_text(source):
        return has_texts(target)
    if _are_days(source, target):
        return True
    return any(_are_read(ours.type, theirs.type) for ours, theirs in _pairs(source, target))


def _are_days(source: pa.DataType, target: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(source) and source.tz is None and pa.types.is_date(target))


def _days(times: pa.Array, field: pa.Field) -> pa.Array:
    """Times at midnight as dates: pandas has no type of dates."""
    days = pc.cast(times, pa.date32())
    back = pc.cast(days, times.type, safe=False)
    if not back.equals(times):
        wrong = times.filter(pc.not_equal(back, times))[:1]
        raise InvalidCallError(
            f"column {field.name!r} needs {field.type}, and {pc.cast(wrong, pa.string())[0]} has a "
            "time of day: cast it yourself if that is meant"
        )
    return pc.cast(days, field.type)


def _pairs(source: pa.DataType, target: pa.DataType) -> list[tuple[pa.Field, pa.Field]]:
    """The fields inside two types that belong together."""
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        fields = {field.name: field for field in target}
        return [(field, fields.get(field.name, field)) for field in source]
    if (is_list(source) and is_list(target)) or (
        pa.types.is_map(source) and pa.types.is_map(target)
    ):
        return list(zip(inner_fields(source), inner_fields(target), strict=True))
    return []


def _parts_read(column: Column, field: pa.Field) -> Column:
    """A column without dictionaries, with the texts and times read that `_are_read` means."""
    if isinstance(column, pa.ChunkedArray):
        chunks = [_parts_read(chunk, field) for chunk in column.chunks]
        return pa.chunked_array(chunks, None if chunks else column.type)
    if not _are_read(column.type, field.type):
        return column
    if is_text(column.type):
        return read_texts(column, field)
    if _are_days(column.type, field.type):
        return _days(column, field)
    parts, fields = [], []
    for (ours, theirs), part in zip(
        _pairs(column.type, field.type), inner_arrays(column), strict=True
    ):
        parts.append(_parts_read(part, pa.field(field.name, theirs.type)))
        fields.append(ours.with_type(parts[-1].type))
    return with_inner_arrays(column, fields, parts)


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
