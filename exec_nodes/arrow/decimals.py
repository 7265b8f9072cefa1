"""Decimal columns as unscaled integers (the value times ten to the scale)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from exec_nodes.arrow.arrays import I64, Mask, fixed_width, null_mask


def unscaled_int64(array: pa.Array) -> tuple[I64, Mask]:
    """The unscaled values, and where one does not fit in an int64 (its value here is 0).

    NULLs are 0 and fit.
    """
    width = array.type.bit_width // 64
    if width == 0:
        return fixed_width(array, np.dtype(np.int32)).astype(np.int64), np.zeros(len(array), bool)
    step = np.dtype((np.int64, (width,)))
    words = fixed_width(array, step).reshape(len(array), width)
    values = words[:, 0].copy()
    wide = np.zeros(len(array), np.bool_)
    for word in range(1, width):
        wide |= words[:, word] != (values >> 63)
    nulls = null_mask(array)
    if nulls is not None:
        wide &= ~nulls
        values[nulls] = 0
    values[wide] = 0
    return values, wide


def unscaled_python(array: pa.Array, rows: I64) -> list[int]:
    """The unscaled values of some rows, exact at any width; for the few that need it."""
    width = array.type.bit_width // 8
    view = memoryview(array.buffers()[1])
    starts = (rows + array.offset) * width
    return [int.from_bytes(view[at : at + width], "little", signed=True) for at in starts.tolist()]


def from_unscaled(values: I64, exact: Sequence[tuple[int, int]], like: pa.Array) -> pa.Array:
    """A column of the type and the NULLs of `like` from unscaled values; `exact` are pairs of row
    and value for those that don't fit in an int64."""
    width = like.type.bit_width // 64
    words = np.empty((len(values), width), np.int64)
    words[:, 0] = values
    words[:, 1:] = (values >> 63)[:, None]
    for row, value in exact:
        words[row] = np.frombuffer(value.to_bytes(width * 8, "little", signed=True), np.int64)
    nulls = null_mask(like)
    validity = None if nulls is None else pa.array(~nulls).buffers()[1]
    return pa.Array.from_buffers(like.type, len(values), [validity, pa.py_buffer(words)])
