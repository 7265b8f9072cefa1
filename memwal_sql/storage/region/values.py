"""A region's values as a manifest stores them: raw Arrow scalars, little endian.

Beside the bytes we note each value's type (`int32`, `utf8`, ...) and whether it is NULL. Native
code knows neither and drops both when it rewrites a manifest; the types of the region's spec then
stand in, and a NULL of a type with a fixed width is known by having no bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from memwal_sql.errors import InvalidCallError
from memwal_sql.storage.proto_gen import mem_wal_pb2 as pb
from planner.regions.spec import RegionSpec
from planner.regions.values import RegionValue, arrow_values, region_values, type_name, type_of

Types = Mapping[str, pa.DataType]


def value_types(spec: RegionSpec) -> dict[str, pa.DataType]:
    """The type of each region field of a spec that is bound to a schema."""
    return {field.field_id: type_of(field.result_type) for field in spec.fields}


def encode_value(
    field_id: str, value: RegionValue, data_type: pa.DataType | None
) -> pb.RegionValue:
    """One entry of a manifest. Raises `InvalidCallError` when the type does not fit."""
    if data_type is None:
        raise InvalidCallError(f"region field {field_id!r} has no type; give the spec's types")
    name = type_name(data_type)
    if value is None:
        return pb.RegionValue(field_id=field_id, is_null=True, type_name=name)
    try:
        array = arrow_values([value], data_type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidCallError(
            f"region field {field_id!r}: {value!r} is not a value of type {name}"
        ) from error
    return pb.RegionValue(field_id=field_id, value=_bytes(array), type_name=name)


def decode_values(entries: Mapping[str, pb.RegionValue], types: Types) -> Mapping[str, RegionValue]:
    """Region field id to value, in the order of `types` and then of the entries.

    Empty when the type of an entry is not known: the values are then unknown as a whole.
    """
    types_by_field = {
        field_id: types.get(field_id) or (type_of(entry.type_name) if entry.type_name else None)
        for field_id, entry in entries.items()
    }
    ordered = [*(f for f in types if f in entries), *(f for f in entries if f not in types)]
    if any(data_type is None for data_type in types_by_field.values()):
        return {}
    return {field_id: _value(entries[field_id], types_by_field[field_id]) for field_id in ordered}


def _bytes(array: pa.Array) -> bytes:
    if pa.types.is_boolean(array.type):
        return b"\x01" if array[0].as_py() else b"\x00"
    if _is_varying(array.type):
        return bytes(array[0].as_buffer())
    buffer = array.buffers()[1]
    return bytes(buffer)[: array.type.byte_width]


def _value(entry: pb.RegionValue, data_type: pa.DataType) -> RegionValue:
    data = entry.value
    if entry.is_null or (not data and not _is_varying(data_type)):
        return None
    if pa.types.is_boolean(data_type):
        return data != b"\x00"
    if _is_varying(data_type):
        is_string = pa.types.is_string(data_type) or pa.types.is_large_string(data_type)
        return data.decode() if is_string else data
    width = data_type.byte_width
    if len(data) != width:
        raise ValueError(f"region value {entry.field_id!r} has {len(data)} bytes, not {width}")
    array = pa.Array.from_buffers(data_type, 1, [None, pa.py_buffer(data)])
    return region_values(array)[0]


def _is_varying(data_type: pa.DataType) -> bool:
    """Whether values are texts or bytes of any length."""
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
    )
