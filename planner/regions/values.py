"""Region values as plain Python values, and the type names that native code writes.

A region value is `None`, `bool`, `int`, `str` or `bytes`: temporal values are integers in the
unit of their type, decimals their plain text.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Mapping
from uuid import UUID

import pyarrow as pa

from exec_nodes.arrow.arrays import is_binary
from exec_nodes.arrow.decimals import read_decimals
from exec_nodes.base.errors import InvalidCallError

RegionValue = None | bool | int | str | bytes

_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_BYTES = ["utf8", "large_utf8", "binary", "large_binary"]
_MOMENTS = ["date32", "date64", "time32[s]", "time32[ms]", "time64[us]", "time64[ns]"]
# Arrow has the same names, and others besides.
_NAMES = {name: pa.type_for_alias(name) for name in ("boolean", *_INTEGERS, *_BYTES, *_MOMENTS)}
_TYPES = {data_type: name for name, data_type in _NAMES.items()}
_SYNONYMS = {"string": "utf8", "large_string": "large_utf8", "bool": "boolean"}
_FIXED = re.compile(r"fixed_size_binary\[(\d+)\]")
_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:, tz=(.+))?\]")
_PLAIN = re.compile(r"-?[0-9]{1,80}(\.[0-9]{1,80})?")
_DECIMAL = re.compile(r"decimal(128|256)\((\d+), (-?\d+)\)")


def type_name(data_type: pa.DataType) -> str:
    """The name under which `data_type` is stored as a result type (`int32`, `utf8`, ...)."""
    if data_type in _TYPES:
        return _TYPES[data_type]
    if pa.types.is_timestamp(data_type) or pa.types.is_decimal(data_type):
        return str(data_type)
    if pa.types.is_fixed_size_binary(data_type):
        return f"fixed_size_binary[{data_type.byte_width}]"
    raise InvalidCallError(
        f"{data_type} can't be the type of a region value; use an integer, boolean, string, "
        "binary, date, time, timestamp or decimal"
    )


def type_of(name: str) -> pa.DataType:
    """The type that `type_name` named; also takes `string` and `bool`."""
    data_type = _NAMES.get(_SYNONYMS.get(name, name))
    if data_type is not None:
        return data_type
    if match := _FIXED.fullmatch(name):
        return pa.binary(int(match[1]))
    if match := _TIMESTAMP.fullmatch(name):
        return pa.timestamp(match[1], match[2])
    if match := _DECIMAL.fullmatch(name):
        make = pa.decimal128 if match[1] == "128" else pa.decimal256
        return make(int(match[2]), int(match[3]))
    raise InvalidCallError(f"unknown result type {name!r}; known are for instance int32, utf8")


def region_values(column: pa.Array | pa.ChunkedArray) -> list[RegionValue]:
    """The region values of an Arrow column, in row order."""
    data_type = column.type
    if pa.types.is_decimal(data_type):
        return [None if v is None else format(v, "f") for v in column.to_pylist()]
    if pa.types.is_temporal(data_type):
        width = pa.int32() if data_type.bit_width == 32 else pa.int64()
        column = column.cast(width)
    values: list[RegionValue] = column.to_pylist()
    return values


def arrow_values(values: list[object], data_type: pa.DataType) -> pa.Array:
    """The inverse of `region_values`; also takes dates, datetimes and decimals."""
    if pa.types.is_decimal(data_type):
        return read_decimals(pa.array([None if v is None else str(v) for v in values]), data_type)
    return pa.array(values, data_type)


def is_value_of(value: RegionValue, data_type: pa.DataType) -> bool:
    """Whether a region value is one of those that `region_values` gives for this type."""
    if value is None:
        return True
    if pa.types.is_boolean(data_type):
        return isinstance(value, bool)
    if pa.types.is_integer(data_type) or pa.types.is_temporal(data_type):
        return isinstance(value, int) and not isinstance(value, bool)
    if pa.types.is_decimal(data_type):
        return isinstance(value, str) and _PLAIN.fullmatch(value) is not None
    return isinstance(value, bytes if is_binary(data_type) else str)


def as_region_value(value: object, data_type: pa.DataType) -> RegionValue:
    """`value` as a region value of `data_type`, from any Python form that Arrow takes for it."""
    if isinstance(value, datetime.date | datetime.time | decimal.Decimal):
        return region_values(arrow_values([value], data_type))[0]
    if value is None or isinstance(value, bool | int | str | bytes):
        return value
    raise InvalidCallError(f"{value!r} is not a region value of type {data_type}")


def region_name(region_id: UUID, values: Mapping[str, RegionValue] | None) -> str:
    """`carrier=UA,origin_bucket=3` from the region's values in field order; the first eight hex
    digits of its id when it has none."""
    if not values:
        return region_id.hex[:8]
    return ",".join(f"{field_id}={_text(value)}" for field_id, value in values.items())


def _text(value: RegionValue) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
