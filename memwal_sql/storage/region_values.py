"""A region's values as the bytes of a manifest: raw Arrow scalars, little endian.

NULL is None; native code has no NULL here, and where it rewrites a manifest a NULL of a type with
a fixed width stays one, since it has no bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from memwal_sql.errors import CorruptFileError, InvalidCallError


def encode_values(
    values: Mapping[str, object], types: Mapping[str, pa.DataType]
) -> dict[str, bytes | None]:
    """Region field id to bytes, for `RegionManifest.region_values`.

    `values` are Python values or Arrow scalars; `types` are the fields' result types.
    """
    return {field_id: _encode(value, types[field_id]) for field_id, value in values.items()}


def decode_values(
    values: Mapping[str, bytes | None], types: Mapping[str, pa.DataType]
) -> dict[str, pa.Scalar]:
    """Region field id to an Arrow scalar of the field's result type.

    Fields without a type (of a spec that is not known here) are left out.
    """
    return {
        field_id: _decode(field_id, value, types[field_id])
        for field_id, value in values.items()
        if field_id in types
    }


def _encode(value: object, data_type: pa.DataType) -> bytes | None:
    plain = value.as_py() if isinstance(value, pa.Scalar) else value
    if plain is None:
        return None
    array = pa.array([plain], data_type)
    if _is_text(data_type):
        encoded = array[0].as_buffer()
        return b"" if encoded is None else encoded.to_pybytes()
    if pa.types.is_boolean(data_type):
        return b"\x01" if plain else b"\x00"
    data: pa.Buffer | None = array.buffers()[1]
    if data is None or pa.types.is_nested(data_type):
        raise InvalidCallError(f"a region value can't be of type {data_type}")
    return data.to_pybytes()[: data_type.byte_width]


def _decode(field_id: str, value: bytes | None, data_type: pa.DataType) -> pa.Scalar:
    if value is None:
        return pa.scalar(None, data_type)
    if _is_text(data_type):
        return pa.scalar(value, pa.binary()).cast(data_type)
    if not value:
        return pa.scalar(None, data_type)
    if pa.types.is_boolean(data_type):
        return pa.scalar(value != b"\x00", data_type)
    if len(value) != data_type.byte_width:
        raise CorruptFileError(
            f"region value {field_id!r} has {len(value)} bytes, type {data_type} needs"
            f" {data_type.byte_width}"
        )
    return pa.Array.from_buffers(data_type, 1, [None, pa.py_buffer(value)])[0]


def _is_text(data_type: pa.DataType) -> bool:
    return (
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
    )
