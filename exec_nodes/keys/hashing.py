"""The 64-bit hash of a primary key that native's `bloom_filter.bin` is built from.

Rust's `DefaultHasher` (SipHash-1-3 with zero keys) over, for each key column: one byte for "is
null" (0, as keys are not null) and the value: integers little-endian in their own width, bool as
one byte, strings as their bytes and 0xFF, binary as its length in 8 bytes and its bytes. Dates
count as integers. Times, timestamps and decimals, which native refuses as keys, count as integers
and as raw little-endian bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import memwal_native
from exec_nodes.arrow.arrays import flat

Hashes = npt.NDArray[np.uint64]

_MASK = (1 << 64) - 1
_NOT_NULL = b"\x00"
_STRING_END = b"\xff"


def hash_columns(columns: Sequence[pa.Array | pa.ChunkedArray]) -> Hashes:
    """uint64, one hash a row of the key columns (no nulls), in row order; read-only."""
    hashes = memwal_native.siphash13([flat(column) for column in columns])
    return np.frombuffer(hashes, np.uint64)


def hash_value(values: Sequence[Any], kinds: Sequence[pa.DataType]) -> int:
    """The hash of one key, given the plain value (see `keys.plain`) and type of each column."""
    return memwal_native.siphash13_bytes(b"".join(map(_message, values, kinds)))


def written_by_native(kinds: Sequence[pa.DataType]) -> list[bool]:
    """The key columns whose values native's writer puts into its bloom filter.

    Its writer leaves the others out, down to their "is null" byte; its readers do not.
    """
    return [
        pa.types.is_int32(k) or pa.types.is_int64(k) or pa.types.is_string(k) or k == pa.binary()
        for k in kinds
    ]


def hash_columns_as_native_writer(columns: Sequence[pa.Array | pa.ChunkedArray]) -> Hashes:
    """`hash_columns` without the values that `written_by_native` says are left out."""
    kept = written_by_native([column.type for column in columns])
    blank = pa.nulls(len(columns[0]), pa.null())
    return hash_columns([c if keep else blank for c, keep in zip(columns, kept, strict=True)])


def _width(kind: pa.DataType) -> int | None:
    """Bytes the value adds to the message; None if that varies."""
    if pa.types.is_null(kind):
        return 0
    if pa.types.is_boolean(kind):
        return 1
    if pa.types.is_fixed_size_binary(kind):
        return None
    try:
        return int(kind.bit_width) // 8
    except ValueError:
        return None


def _message(value: Any, kind: pa.DataType) -> bytes:
    width = _width(kind)
    if width == 0:
        return _NOT_NULL
    if isinstance(value, bytes) and width is not None:
        return _NOT_NULL + value  # a decimal
    if isinstance(value, str):
        return _NOT_NULL + value.encode() + _STRING_END
    if isinstance(value, bytes):
        return _NOT_NULL + len(value).to_bytes(8, "little") + value
    return _NOT_NULL + (int(value) & _MASK).to_bytes(8, "little")[:width]
