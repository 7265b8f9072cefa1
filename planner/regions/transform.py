"""The well-known transforms over Arrow columns (specification 1, "Region Transform").

Protocol rule 12: buckets in 64 bits with NULL for NULL, date parts as calendar parts in UTC,
truncation toward zero, and native's own bucket for fields that native code made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import memwal_native
from exec_nodes.arrow.arrays import I64, fixed_width, flat, null_mask
from exec_nodes.base.errors import InvalidCallError, UnsupportedError
from planner.regions.expression import evaluate_expression
from planner.regions.field import RegionField
from planner.regions.hashing.murmur3 import bucket, murmur3, murmur3_multi, scalar_murmur3
from planner.regions.hashing.native_bucket import native_bucket
from planner.regions.values import RegionValue, region_values, type_of

DATE_PARTS = ("year", "month", "day", "hour")
SOURCE_TYPES = "source_types"
# The most that Lance's own `bucket` takes.
LANCE_BUCKETS = 1024
TRANSFORMS = ("identity", *DATE_PARTS, "bucket", "multi_bucket", "truncate", "unsharded")


def evaluate_field(field: RegionField, table: pa.Table) -> pa.Array:
    """The region value of every row; a column that `table` lacks reads as NULL."""
    columns = [_column(table, name) for name in field.source_columns]
    return evaluate_columns(field, columns, table.num_rows)


def evaluate_columns(field: RegionField, columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """As `evaluate_field`, from the source columns in order. Errors name the field."""
    try:
        result = _evaluate(field, columns, rows)
    except InvalidCallError as error:
        raise type(error)(f"region field {field.field_id!r}: {error}") from error
    if field.result_type and pa.types.is_null(result.type):
        return result.cast(type_of(field.result_type))
    return result


def _evaluate(field: RegionField, columns: Sequence[pa.Array], rows: int) -> pa.Array:
    if field.expression is not None:
        declared = type_of(field.result_type) if field.result_type else None
        columns = [
            _typed(column, kind) for column, kind in zip(columns, _source_types(field), strict=True)
        ]
        return evaluate_expression(field.expression, columns, declared)
    match field.transform:
        case "identity":
            return columns[0]
        case "year" | "month" | "day" | "hour":
            return date_part(field.transform, columns[0])
        case "bucket" if field.native:
            return native_bucket(columns[0], num_buckets_of(field))
        case "bucket":
            return bucket(murmur3(columns[0]), num_buckets_of(field))
        case "multi_bucket":
            return bucket(murmur3_multi(columns), num_buckets_of(field))
        case "truncate":
            return truncate(columns[0], width_of(field))
        case "unsharded":
            return pa.array(np.zeros(rows, np.int32))
    raise UnsupportedError(
        f"unknown transform {field.transform!r}, which a newer version may know; known are "
        f"{', '.join(TRANSFORMS)}"
    )


def key_function_of(
    field: RegionField, primary_key: tuple[str, ...], types: tuple[pa.DataType, ...]
) -> Callable[[object], RegionValue]:
    """A function from one key value (see `exec_nodes.keys.keys`) to the value of `field`.

    Buckets of one column (Lance's of integers only), the identity and the one region of a table
    that is not sharded take a microsecond; the rest goes through Arrow.
    """
    if field.transform == "unsharded":
        return _first_region
    positions = [primary_key.index(c) if c in primary_key else -1 for c in field.source_columns]
    single = len(primary_key) == 1
    if len(positions) == 1 and positions[0] >= 0:
        at = positions[0]
        own: Callable[[object], RegionValue] | None = None
        if field.transform == "bucket" and field.native:
            own = _scalar_native_bucket(types[at], num_buckets_of(field))
        elif field.transform == "bucket":
            own = _scalar_bucket(types[at], num_buckets_of(field))
        elif field.transform == "identity" and not pa.types.is_decimal(types[at]):
            own = _same
        if own is not None:
            return own if single else _picking(own, at)

    def through_arrow(key: object) -> RegionValue:
        parts = (key,) if single else key
        columns = [
            pa.nulls(1) if at < 0 else array_of_key(parts[at], types[at])  # type: ignore[index]
            for at in positions
        ]
        return region_values(evaluate_columns(field, columns, 1))[0]

    return through_arrow


def array_of_key(value: object, data_type: pa.DataType) -> pa.Array:
    """One key value (see `exec_nodes.keys.keys`) as a column of one row."""
    if pa.types.is_decimal(data_type) and isinstance(value, bytes):
        return pa.Array.from_buffers(data_type, 1, [None, pa.py_buffer(value)])
    return pa.array([value], data_type)


def num_buckets_of(field: RegionField) -> int:
    """The positive `num_buckets` parameter."""
    return _parameter(field, "num_buckets")


def width_of(field: RegionField) -> int:
    """The positive `width` parameter."""
    return _parameter(field, "width")


def date_part(part: str, column: pa.Array) -> pa.Array:
    """The calendar part of a date, time or timestamp in UTC, as int32."""
    array = flat(column)
    kind = array.type
    if pa.types.is_null(kind):
        return pa.nulls(len(array), pa.int32())
    if pa.types.is_date32(kind):
        moments = fixed_width(array, np.dtype(np.int32)).astype("M8[D]")
    elif pa.types.is_date64(kind):
        moments = fixed_width(array, np.dtype(np.int64)).view("M8[ms]")
    elif pa.types.is_timestamp(kind) or (pa.types.is_time(kind) and part == "hour"):
        width = np.dtype(np.int32 if kind.bit_width == 32 else np.int64)
        # A zone says how to print; the stored number counts from 1970 in UTC.
        moments = fixed_width(array, width).astype(np.int64, copy=False).view(f"M8[{kind.unit}]")
    else:
        raise InvalidCallError(f"{part} needs a date or timestamp column, not one of type {kind}")
    return pa.array(_PARTS[part](moments).astype(np.int32), mask=null_mask(array))


def truncate(column: pa.Array, width: int) -> pa.Array:
    """The first `width` characters, or the number rounded toward zero to a multiple of `width`."""
    array = flat(column)
    kind = array.type
    if pa.types.is_null(kind):
        return array
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pc.utf8_slice_codeunits(array, 0, width)
    if pa.types.is_decimal(kind):
        return _truncate_decimal(array, width)
    if pa.types.is_integer(kind):
        values = fixed_width(array, np.dtype(kind.to_pandas_dtype()))
        wide = np.uint64 if pa.types.is_uint64(kind) else np.int64
        numbers = values.astype(wide, copy=False)
        # fmod keeps the sign of the number, so this rounds toward zero.
        rounded = numbers - np.fmod(numbers, wide(width))
        return pa.array(rounded.astype(values.dtype), kind, mask=null_mask(array))
    raise InvalidCallError(f"truncate needs a string, integer or decimal column, not {kind}")


def _column(table: pa.Table, name: str | None) -> pa.Array:
    if name is None or name not in table.column_names:
        return pa.nulls(table.num_rows)
    return flat(table.column(name))


def _source_types(field: RegionField) -> list[pa.DataType | None]:
    """The types of the source columns when the field was made, for a column that is gone."""
    names = field.parameters.get(SOURCE_TYPES)
    if names is None:
        return [None] * len(field.source_columns)
    return [type_of(name) for name in names.split(";")]


def _typed(column: pa.Array, kind: pa.DataType | None) -> pa.Array:
    return column.cast(kind) if kind is not None and pa.types.is_null(column.type) else column


def _parameter(field: RegionField, name: str) -> int:
    text = field.parameters.get(name, "")
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**31):
        raise InvalidCallError(
            f"{name}={text!r} of region field {field.field_id!r} must be an integer from 1 to "
            "2147483647"
        )
    return int(text)


def _scalar_bucket(kind: pa.DataType, num_buckets: int) -> Callable[[object], RegionValue] | None:
    murmur = scalar_murmur3(kind)
    if murmur is None:
        return None

    def bucket_of(value: object) -> RegionValue:
        return None if value is None else abs(murmur(value)) % num_buckets

    return bucket_of


def _scalar_native_bucket(
    kind: pa.DataType, num_buckets: int
) -> Callable[[object], RegionValue] | None:
    """The width of integers, by which `native_bucket` hashes them; None for other types."""
    if not pa.types.is_integer(kind):
        return None
    width = 8 if kind.bit_width == 64 else 4
    mask = (1 << 8 * width) - 1
    murmur = memwal_native.murmur3_bytes

    def bucket_of(value: object) -> RegionValue:
        if value is None:
            return 0
        data = (value & mask).to_bytes(width, "little")  # type: ignore[operator]
        return (murmur(data) & 0x7FFFFFFF) % num_buckets

    return bucket_of


def _first_region(_: object) -> RegionValue:
    return 0


def _same(value: object) -> RegionValue:
    return value  # type: ignore[return-value]


def _picking(function: Callable[[object], RegionValue], at: int) -> Callable[[object], RegionValue]:
    return lambda key: function(key[at])  # type: ignore[index]


def _truncate_decimal(array: pa.Array, width: int) -> pa.Array:
    """Rounded as whole numbers of the smallest digit: a kernel takes no width that the precision
    of the type has no room for."""
    kind = array.type
    most = pa.decimal256(76, kind.scale) if kind.bit_width == 256 else pa.decimal128(38, kind.scale)
    whole = pa.decimal256(76, 0) if kind.bit_width == 256 else pa.decimal128(38, 0)
    step = width * 10 ** max(kind.scale, 0)
    if step >= 10**most.precision:  # beyond every value
        return pc.if_else(array.is_valid(), pa.scalar(Decimal(0), most), None).cast(kind)
    numbers = _as_decimal(array.cast(most), whole)
    multiple = pa.scalar(Decimal(step), whole)
    rounded = pc.round_to_multiple(numbers, multiple=multiple, round_mode="towards_zero")
    return _as_decimal(rounded, most).cast(kind)


def _as_decimal(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same digits at another scale."""
    return pa.Array.from_buffers(kind, len(array), array.buffers(), offset=array.offset)


def _year(moments: np.ndarray[tuple[int], np.dtype[np.datetime64]]) -> I64:
    return moments.astype("M8[Y]").astype(np.int64) + 1970


def _month(moments: np.ndarray[tuple[int], np.dtype[np.datetime64]]) -> I64:
    return moments.astype("M8[M]").astype(np.int64) % 12 + 1


def _day(moments: np.ndarray[tuple[int], np.dtype[np.datetime64]]) -> I64:
    months = moments.astype("M8[M]").astype("M8[D]").astype(np.int64)
    return moments.astype("M8[D]").astype(np.int64) - months + 1


def _hour(moments: np.ndarray[tuple[int], np.dtype[np.datetime64]]) -> I64:
    return moments.astype("M8[h]").astype(np.int64) % 24


_PARTS = {"year": _year, "month": _month, "day": _day, "hour": _hour}
