"""Views of Arrow columns as numpy arrays, without copies where the layout allows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def is_text(kind: pa.DataType) -> bool:
    """True for the string types."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def is_binary(kind: pa.DataType) -> bool:
    """True for the types of bytes."""
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def is_json(kind: pa.DataType) -> bool:
    """Whether values are JSON texts."""
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.json"


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists, of one size or of any."""
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def is_list_view(kind: pa.DataType) -> bool:
    """Whether values are lists of any size, in any order."""
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def is_variable_list(kind: pa.DataType) -> bool:
    """Whether values are lists of any size."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def flattened(lists: pa.Array) -> tuple[pa.Array, I64]:
    """The elements of lists of any size, and the place of each one's list; without those that Arrow
    may keep below a null list, which `list_parent_indices` counts."""
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
    return pc.list_flatten(lists), np.repeat(np.arange(len(lists)), lengths)


def is_bytes_like(kind: pa.DataType) -> bool:
    """True for the string and binary types that are hashed by their bytes."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array, with dictionaries decoded and without views; with 64-bit offsets if 32 bits do not
    suffice."""
    array = _combined(column) if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.large_string())
    elif pa.types.is_binary_view(array.type):
        array = array.cast(pa.large_binary())
    return array


def type_text(kind: pa.DataType) -> str:
    """A type with its article, as in `an int32`."""
    return f"{'an' if str(kind)[0] in 'aeio' else 'a'} {kind}"


def _combined(column: pa.ChunkedArray) -> pa.Array:
    if not column.num_chunks:
        return pa.array([], column.type)
    try:
        return pa.concat_arrays(column.chunks)
    except pa.ArrowInvalid:
        if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
            raise
        wide = pa.large_string() if pa.types.is_string(column.type) else pa.large_binary()
        return pa.concat_arrays(column.cast(wide).chunks)


def null_mask(array: pa.Array) -> Mask | None:
    """True where the value is NULL; None if none is."""
    if not array.null_count:
        return None
    return np.asarray(pc.is_null(array).to_numpy(zero_copy_only=False), dtype=np.bool_)


def fixed_width(array: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The values buffer as a numpy array, without a copy; any value for NULL."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array), dtype)
    return np.frombuffer(data, dtype, len(array), array.offset * dtype.itemsize)
