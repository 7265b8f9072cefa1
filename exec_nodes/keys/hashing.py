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
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]

_MASK = (1 << 64) - 1
_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_ROWS_PER_BLOCK = 16_384
_NOT_NULL = b"\x00"
_STRING_END = b"\xff"


def hash_columns(columns: Sequence[pa.Array | pa.ChunkedArray]) -> Hashes:
    """uint64, one hash a row of the key columns (no nulls), in row order."""
    if not len(columns[0]):
        return np.empty(0, np.uint64)
    arrays = [_one_array(column) for column in columns]
    if all(_width(array.type) is not None for array in arrays):
        return _hash_fixed(arrays)
    return _hash_messages(_messages(arrays))


def hash_value(values: Sequence[Any], kinds: Sequence[pa.DataType]) -> int:
    """The hash of one key, given the plain value (see `keys.plain`) and type of each column."""
    return _sip_scalar(b"".join(map(_message, values, kinds)))


def written_by_native(kinds: Sequence[pa.DataType]) -> list[bool]:
    """Which key columns' values native's writer puts into its bloom filter.

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


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


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


def _hash_fixed(arrays: Sequence[pa.Array]) -> Hashes:
    rows = len(arrays[0])
    widths = [_width(array.type) or 0 for array in arrays]
    length = sum(widths) + len(widths)
    message = np.zeros((rows, 8 * (length // 8 + 1)), np.uint8)
    message[:, -1] = length & 0xFF
    at = 0
    for array, width in zip(arrays, widths, strict=True):
        if width:
            message[:, at + 1 : at + 1 + width] = _raw(array, width)
        at += 1 + width
    return _sip(message.view("<u8"))


def _raw(array: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    data = np.frombuffer(array.buffers()[1], np.uint8)
    start = array.offset * width
    return data[start : start + len(array) * width].reshape(len(array), width)


def _messages(arrays: Sequence[pa.Array]) -> pa.Array:
    parts: list[Any] = []
    for array in arrays:
        kind = array.type
        parts.append(pa.scalar(_NOT_NULL, pa.large_binary()))
        width = _width(kind)
        if width == 0:
            continue
        if width is not None:
            raw = pa.py_buffer(np.ascontiguousarray(_raw(array, width)))
            fixed = pa.Array.from_buffers(pa.binary(width), len(array), [None, raw])
            parts.append(fixed.cast(pa.large_binary()))
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            parts += [array.cast(pa.large_binary()), pa.scalar(_STRING_END, pa.large_binary())]
        else:
            value = array.cast(pa.large_binary())
            length = pc.binary_length(value).cast(pa.int64())
            parts += [length.view(pa.binary(8)).cast(pa.large_binary()), value]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


def _hash_messages(messages: pa.Array) -> Hashes:
    """Hash binary values of varying length, those with equally many 8-byte words together."""
    _, offset_buffer, data_buffer = messages.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[messages.offset :][: len(messages) + 1]
    data = np.zeros(int(offsets[-1]) + 16, np.uint8)
    data[: offsets[-1]] = np.frombuffer(data_buffer, np.uint8)[: offsets[-1]]
    # The 8 bytes from every byte position on, without a copy.
    words_at = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
    starts, lengths = offsets[:-1], np.diff(offsets)
    result = np.empty(len(messages), np.uint64)
    counts = lengths // 8 + 1
    for count in np.unique(counts):
        rows = np.flatnonzero(counts == count)
        words = words_at[starts[rows, None] + np.arange(0, 8 * count, 8)]
        tail = (lengths[rows] % 8 * 8).astype(np.uint64)
        words[:, -1] &= (np.uint64(1) << tail) - np.uint64(1)
        words[:, -1] |= lengths[rows].astype(np.uint64) << np.uint64(56)
        result[rows] = _sip(words)
    return result


def _sip(words: npt.NDArray[np.uint64]) -> Hashes:
    """SipHash-1-3 of each row of (rows, words); the last word carries the length."""
    result = np.empty(len(words), np.uint64)
    for start in range(0, len(words), _ROWS_PER_BLOCK):
        block = np.ascontiguousarray(words[start : start + _ROWS_PER_BLOCK].T)
        v = [np.full(block.shape[1], word, np.uint64) for word in _START]
        for word in block:
            v[3] ^= word
            _round(v)
            v[0] ^= word
        v[2] ^= np.uint64(0xFF)
        for _ in range(3):
            _round(v)
        result[start : start + _ROWS_PER_BLOCK] = v[0] ^ v[1] ^ v[2] ^ v[3]
    return result


def _round(v: list[npt.NDArray[np.uint64]]) -> None:
    a, b, c, d = v
    a += b
    b = _rotate(b, 13)
    b ^= a
    a = _rotate(a, 32)
    c += d
    d = _rotate(d, 16)
    d ^= c
    a += d
    d = _rotate(d, 21)
    d ^= a
    c += b
    b = _rotate(b, 17)
    b ^= c
    v[:] = a, b, _rotate(c, 32), d


def _rotate(x: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    high = x << np.uint64(bits)
    high |= x >> np.uint64(64 - bits)
    return high


def _sip_scalar(message: bytes) -> int:
    length = len(message)
    padded = message + bytes(7 - length % 8) + bytes([length & 0xFF])
    a, b, c, d = _START
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        a, b, c, d = _round_scalar(a, b, c, d ^ word)
        a ^= word
    c ^= 0xFF
    for _ in range(3):
        a, b, c, d = _round_scalar(a, b, c, d)
    return a ^ b ^ c ^ d


def _round_scalar(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    a = (a + b) & _MASK
    b = ((b << 13) & _MASK | b >> 51) ^ a
    a = (a << 32) & _MASK | a >> 32
    c = (c + d) & _MASK
    d = ((d << 16) & _MASK | d >> 48) ^ c
    a = (a + d) & _MASK
    d = ((d << 21) & _MASK | d >> 43) ^ a
    c = (c + b) & _MASK
    b = ((b << 17) & _MASK | b >> 47) ^ c
    return a, b, (c << 32) & _MASK | c >> 32, d
