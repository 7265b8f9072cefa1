"""The bucket function of Lance's native code, for tables that native code made.

It is another function than the specification's (protocol rule 12): integers of up to 32 bits are
hashed as 4 bytes, the tail bytes of a string go through a whole round each, NULL is bucket 0, and
the sign bit is cleared instead of taking the absolute value. Equal to pylance's
`evaluate_sharding_spec` for every type that takes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.arrow.arrays import (
    I64,
    U32,
    byte_rows,
    fixed_width,
    flat,
    null_mask,
    unaligned_words,
)
from exec_nodes.base.errors import InvalidCallError
from planner.regions.hashing.murmur3 import finish, hash_blocks, hash_int64, mix

_NAN = {4: 0x7FC00000, 8: 0x7FF8000000000000}


def native_bucket(column: pa.Array | pa.ChunkedArray, num_buckets: int) -> pa.Array:
    """The native bucket of every value, as int32 without NULLs."""
    if num_buckets <= 0:
        raise InvalidCallError(f"num_buckets={num_buckets} must be positive")
    array = flat(column)
    hashes = np.zeros(len(array), np.uint32) if pa.types.is_null(array.type) else _hash(array)
    nulls = null_mask(array)
    if nulls is not None:
        hashes[nulls] = 0
    return pa.array(((hashes & 0x7FFFFFFF) % np.uint32(num_buckets)).astype(np.int32))


def _hash(array: pa.Array) -> U32:
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _hash_text(array)
    if pa.types.is_boolean(kind):
        return _hash_int32(fixed_width(array.cast(pa.int8()), np.dtype(np.int8)))
    if pa.types.is_floating(kind) and kind.bit_width >= 32:
        return _hash_float(array)
    is_64 = pa.types.is_int64(kind) or pa.types.is_uint64(kind)
    if is_64 or pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return hash_int64(fixed_width(array, np.dtype(np.int64)))
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return _hash_int32(fixed_width(array, np.dtype(np.int32)))
    if pa.types.is_integer(kind):
        return _hash_int32(fixed_width(array, np.dtype(kind.to_pandas_dtype())))
    raise InvalidCallError(f"native code has no bucket for a column of type {kind}")


def _hash_int32(values: npt.NDArray[np.generic]) -> U32:
    words = values.astype(np.int64).astype(np.uint32)
    return finish(mix(np.zeros(len(words), np.uint32), words), np.uint32(4))


def _hash_float(array: pa.Array) -> U32:
    size = array.type.bit_width // 8
    values = fixed_width(array, np.dtype(f"f{size}"))
    bits = values.view(f"u{size}").copy()
    bits[values == 0] = 0
    bits[np.isnan(values)] = _NAN[size]
    return hash_int64(bits.view(np.int64)) if size == 8 else _hash_int32(bits)


def _hash_text(array: pa.Array) -> U32:
    data, starts, lengths = byte_rows(array)
    nulls = null_mask(array)
    if nulls is not None:
        lengths[nulls] = 0
    words = unaligned_words(data)
    state, rest = hash_blocks(words, starts, lengths)
    tails: I64 = starts + lengths - rest
    for position in range(3):
        rows = np.flatnonzero(rest > position)
        signed = data[tails[rows] + position].view(np.int8).astype(np.int64).astype(np.uint32)
        state[rows] = mix(state[rows], signed)
    return finish(state, lengths.astype(np.uint32))
