"""Murmur3 x86 32 bit, seed 0, over Arrow columns (specification 1, "Region Transform").

What is hashed (`encode`), so that equal values of promoted types hash the same:

* integers, unsigned ones and booleans: the value as 8 little-endian bytes of an int64; uint64 from
  2**63 up: the same 8 bytes of the unsigned value;
* dates: days since 1970; times: microseconds since midnight; timestamps: microseconds since 1970
  in UTC (finer ones are rounded down); each as an int64 above;
* decimals: a whole number that fits in 64 bits like that integer, any other by its digits without
  trailing zeros: as an int64 if they fit, else as 32 little-endian bytes;
* strings: UTF-8; binary: the bytes.

The hash equals `mmh3.hash(encoding, 0, signed=True)`. NULL hashes to NULL.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import (
    I64,
    Mask,
    byte_rows,
    fixed_width,
    flat,
    is_bytes_like,
    null_mask,
    unaligned_words,
)
from exec_nodes.arrow.decimals import unscaled_int64, unscaled_python
from exec_nodes.base.errors import InvalidCallError

U32 = npt.NDArray[np.uint32]

C1, C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_ROUND = np.uint32(0xE6546B64)
_FIVE = np.uint32(5)
_FINAL1, _FINAL2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
# Longer values are few and would each cost a pass over the column: they go one by one.
_MAX_VECTOR_BYTES = 256
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def murmur3(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The hash of every value, as int32; NULL for NULL."""
    array = flat(column)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), pa.int32())
    if is_bytes_like(array.type):
        hashes = _hash_bytes(array)
    elif pa.types.is_decimal(array.type):
        hashes = _hash_bytes(_decimal_bytes(array))
    else:
        hashes = hash_int64(integer_values(array))
    return pa.array(hashes.view(np.int32), mask=null_mask(array))


def murmur3_multi(columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """One hash a row over several columns, as int32.

    It is the hash of the encodings of the row's values one after the other, in column order; NULLs
    add nothing, and a row of NULLs only is NULL. For one column it equals `murmur3`.
    """
    if not columns:
        raise InvalidCallError("murmur3_multi needs at least one column")
    present = [flat(column) for column in columns]
    present = [array for array in present if not pa.types.is_null(array.type)]
    if len(present) <= 1:
        return murmur3(present[0] if present else columns[0])
    empty = pa.scalar(b"", pa.large_binary())
    # Arrow's null_handling="skip" returns too few rows when all inputs are NULL.
    joined = pc.binary_join_element_wise(
        *[pc.fill_null(encode(array), empty) for array in present], empty
    )
    hashes = _hash_bytes(joined).view(np.int32)
    masks = [null_mask(array) for array in present]
    known = [mask for mask in masks if mask is not None]
    if len(known) < len(masks):
        return pa.array(hashes)
    return pa.array(hashes, mask=np.logical_and.reduce(known))


def bucket(hashes: pa.Array, num_buckets: int) -> pa.Array:
    """`abs(hash) % num_buckets` as int32; computed in 64 bits, so that -2**31 has a bucket."""
    if num_buckets <= 0:
        raise InvalidCallError(f"num_buckets={num_buckets} must be positive")
    # A division by a constant of 32 unsigned bits is several times faster than one of 64.
    values = np.abs(fixed_width(hashes, np.dtype(np.int32)).astype(np.int64)).astype(np.uint32)
    buckets = (values % np.uint32(num_buckets)).astype(np.int32)
    return pa.array(buckets, mask=null_mask(hashes))


def scalar_encoder(data_type: pa.DataType) -> Callable[[object], bytes]:
    """A function from one value that is not NULL to the bytes that are hashed; the value in the
    form of `exec_nodes.keys.keys` (temporal ones as integers, decimals as bytes)."""
    pack = struct.Struct("<q").pack
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return str.encode  # type: ignore[return-value]
    if is_bytes_like(data_type):
        return bytes  # type: ignore[return-value]
    if pa.types.is_uint64(data_type):
        return struct.Struct("<Q").pack
    if pa.types.is_integer(data_type) or pa.types.is_boolean(data_type):
        return pack
    if pa.types.is_date32(data_type):
        return pack

    def through_arrow(value: object) -> bytes:
        return bytes(encode(_one(value, data_type))[0].as_py())

    return through_arrow


def encode(column: pa.Array | pa.ChunkedArray) -> pa.LargeBinaryArray:
    """The bytes that are hashed for every value (see the head of this module); NULL for NULL."""
    array = flat(column)
    if is_bytes_like(array.type):
        return array.cast(pa.large_binary())
    if pa.types.is_decimal(array.type):
        return _decimal_bytes(array)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), pa.large_binary())
    return _eight_bytes(integer_values(array), null_mask(array))


def hash_int64(values: I64) -> U32:
    """The hash of each value as 8 little-endian bytes."""
    words = np.ascontiguousarray(values).view(np.uint32).reshape(-1, 2)
    state = mix(np.zeros(len(values), np.uint32), words[:, 0])
    return finish(mix(state, words[:, 1]), np.uint32(8))


def mix(state: U32, block: U32) -> U32:
    """One round of the hash over one 4-byte block a row."""
    state = state ^ scramble(block)
    state = (state << np.uint32(13)) | (state >> np.uint32(19))
    return state * _FIVE + _ROUND


def scramble(block: U32) -> U32:
    """A block as it enters the state; also what the specification's tail bytes go through."""
    block = block * C1
    return ((block << np.uint32(15)) | (block >> np.uint32(17))) * C2


def finish(state: U32, length: U32 | np.uint32) -> U32:
    """The final avalanche over the state and the length in bytes."""
    state = state ^ length
    state ^= state >> np.uint32(16)
    state *= _FINAL1
    state ^= state >> np.uint32(13)
    state *= _FINAL2
    state ^= state >> np.uint32(16)
    return state


def integer_values(array: pa.Array) -> I64:
    """The int64 that stands for each value of an integer-like column; any value for NULL."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return fixed_width(array.cast(pa.int8()), np.dtype(np.int8)).astype(np.int64)
    if pa.types.is_uint64(kind):
        return fixed_width(array, np.dtype(np.uint64)).view(np.int64)
    if pa.types.is_integer(kind):
        return fixed_width(array, np.dtype(kind.to_pandas_dtype())).astype(np.int64, copy=False)
    if pa.types.is_date32(kind):
        return fixed_width(array, np.dtype(np.int32)).astype(np.int64)
    if pa.types.is_date64(kind):
        return fixed_width(array, np.dtype(np.int64)) // 86_400_000
    if pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        width = np.dtype(np.int32 if kind.bit_width == 32 else np.int64)
        values = fixed_width(array, width).astype(np.int64, copy=False)
        if kind.unit == "ns":
            return values // 1000
        with np.errstate(over="ignore"):
            return values * np.int64(_MICROSECONDS[kind.unit])
    raise InvalidCallError(
        f"a column of type {kind} can't be hashed; use an integer, boolean, string, binary, date, "
        "time, timestamp or decimal column"
    )


def _hash_bytes(array: pa.Array) -> U32:
    data, starts, lengths = byte_rows(array)
    long = np.flatnonzero(lengths > _MAX_VECTOR_BYTES)
    state = hash_rows(data, starts, np.where(lengths > _MAX_VECTOR_BYTES, 0, lengths))
    if len(long):
        whole = data.tobytes()
        ends = (starts + lengths)[long]
        slices = map(whole.__getitem__, map(slice, starts[long].tolist(), ends.tolist()))
        hashes = np.fromiter(map(mmh3.hash, slices), np.int64, len(long))
        state[long] = hashes.astype(np.int32).view(np.uint32)
    return state


def hash_rows(data: npt.NDArray[np.uint8], starts: I64, lengths: I64) -> U32:
    """The hash of `data[start:start + length]` for each row, one pass a 4-byte block."""
    words = unaligned_words(data)
    state, rest = hash_blocks(words, starts, lengths)
    tail = words[starts + (lengths - rest)] & ((np.uint32(1) << (rest * 8).astype(np.uint32)) - 1)
    return finish(state ^ scramble(tail), lengths.astype(np.uint32))


def hash_blocks(words: U32, starts: I64, lengths: I64) -> tuple[U32, I64]:
    """The state after the full blocks of each row, and how many bytes remain in each."""
    blocks, rest = lengths >> 2, lengths & 3
    state = np.zeros(len(starts), np.uint32)
    most = int(blocks.max()) if len(blocks) else 0
    least = int(blocks.min()) if len(blocks) else 0
    for block in range(least):
        state = mix(state, words[starts + 4 * block])
    for block in range(least, most):
        rows = np.flatnonzero(blocks > block)
        state[rows] = mix(state[rows], words[starts[rows] + 4 * block])
    return state, rest


def _decimal_bytes(array: pa.Array) -> pa.LargeBinaryArray:
    values, wide = unscaled_int64(array)
    scale = array.type.scale
    if scale > 0:
        values = _without_scale(values, scale)
    narrow = _eight_bytes(values, null_mask(array))
    if not wide.any() and scale >= 0:
        return narrow
    rows = np.flatnonzero(wide) if scale >= 0 else np.arange(len(array))
    exact = pa.array([_wide_bytes(v, scale) for v in unscaled_python(array, rows)], narrow.type)
    chosen = np.zeros(len(array), np.bool_)
    chosen[rows] = True
    replaced = pc.replace_with_mask(narrow, pa.array(chosen), exact)
    return pc.if_else(pc.is_valid(array), replaced, pa.scalar(None, narrow.type))


def _without_scale(values: I64, scale: int) -> I64:
    whole = (values % 10**scale == 0) if scale <= 18 else (values == 0)
    shifted = values // 10**scale if scale <= 18 else values
    digits = values.copy()
    rows = np.flatnonzero(~whole)
    while len(rows := rows[digits[rows] % 10 == 0]):
        digits[rows] //= 10
    return np.where(whole, shifted, digits)


def _wide_bytes(unscaled: int, scale: int) -> bytes:
    shift: int = 10 ** abs(scale)
    value, remainder = divmod(unscaled, shift) if scale > 0 else (unscaled * shift, 0)
    if not remainder and -(2**63) <= value < 2**64:
        return (value % 2**64).to_bytes(8, "little")
    while unscaled % 10 == 0:
        unscaled //= 10
    if -(2**63) <= unscaled < 2**63:
        return unscaled.to_bytes(8, "little", signed=True)
    return unscaled.to_bytes(32, "little", signed=True)


def _eight_bytes(values: I64, nulls: Mask | None) -> pa.LargeBinaryArray:
    offsets = np.arange(0, 8 * len(values) + 1, 8, dtype=np.int64)
    data = pa.py_buffer(np.ascontiguousarray(values))
    validity = None if nulls is None else pa.array(~nulls).cast(pa.bool_()).buffers()[1]
    buffers = [validity, pa.py_buffer(offsets), data]
    return pa.Array.from_buffers(pa.large_binary(), len(values), buffers)


def _one(value: object, data_type: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(data_type) and isinstance(value, bytes):
        return pa.Array.from_buffers(data_type, 1, [None, pa.py_buffer(value)])
    return pa.array([value], data_type)
