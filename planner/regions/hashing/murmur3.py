"""Murmur3 x86 32 bit, seed 0, over Arrow columns (specification 1, "Region Transform").

What is hashed, so that equal values of promoted types hash the same:

* integers, unsigned ones and booleans: the value as 8 little-endian bytes of an int64; uint64 from
  2**63 up: the same 8 bytes of the unsigned value;
* dates: days since 1970; times: microseconds since midnight; timestamps: microseconds since 1970
  in UTC (finer ones are rounded down); each as an int64 above;
* decimals: a whole number that fits in 64 bits like that integer, any other by its digits without
  trailing zeros: as an int64 if they fit, else as 32 little-endian bytes;
* strings: UTF-8; binary: the bytes.

The kernel is `native/src/hashing/murmur3`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

import memwal_native
from exec_nodes.arrow.arrays import fixed_width, flat, is_bytes_like, null_mask
from exec_nodes.base.errors import InvalidCallError


def murmur3(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The hash of every value, as int32; NULL for NULL."""
    return murmur3_multi([column])


def murmur3_multi(columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """One hash a row over several columns, as int32.

    It is the hash of what is hashed of the row's values one after the other, in column order; NULLs
    add nothing, and a row of NULLs only is NULL.
    """
    if not columns:
        raise InvalidCallError("murmur3_multi needs at least one column")
    arrays = [flat(column) for column in columns]
    for array in arrays:
        _check(array.type)
    return pa.array(memwal_native.murmur3(arrays))


def bucket(hashes: pa.Array, num_buckets: int) -> pa.Array:
    """`abs(hash) % num_buckets` as int32; computed in 64 bits, so that -2**31 has a bucket."""
    if num_buckets <= 0:
        raise InvalidCallError(f"num_buckets={num_buckets} must be positive")
    # A division by a constant of 32 unsigned bits is several times faster than one of 64.
    values = np.abs(fixed_width(hashes, np.dtype(np.int32)).astype(np.int64)).astype(np.uint32)
    buckets = (values % np.uint32(num_buckets)).astype(np.int32)
    return pa.array(buckets, mask=null_mask(hashes))


def scalar_murmur3(data_type: pa.DataType) -> Callable[[object], int] | None:
    """`murmur3` of one value that is not NULL, in the form of `exec_nodes.keys.keys`; None for
    types that are hashed as columns only."""
    encode: Callable[[object], bytes]
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        encode = str.encode  # type: ignore[assignment]
    elif is_bytes_like(data_type):
        encode = bytes  # type: ignore[assignment]
    elif pa.types.is_uint64(data_type):
        encode = struct.Struct("<Q").pack
    elif (
        pa.types.is_integer(data_type)
        or pa.types.is_boolean(data_type)
        or pa.types.is_date32(data_type)
    ):
        encode = struct.Struct("<q").pack
    else:
        return None
    return lambda value: memwal_native.murmur3_bytes(encode(value))


def _check(kind: pa.DataType) -> None:
    is_number = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind)
    if not (
        is_number
        or is_bytes_like(kind)
        or pa.types.is_null(kind)
        or pa.types.is_date(kind)
        or pa.types.is_time(kind)
        or pa.types.is_timestamp(kind)
    ):
        raise InvalidCallError(
            f"a column of type {kind} can't be hashed; use an integer, boolean, string, binary, "
            "date, time, timestamp or decimal column"
        )
