"""How large columns become once they have the layout of a table.

Dictionaries, runs, views of lists and columns of nulls name values that they have once, or never:
some bytes of a file may stand for gigabytes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import flat, is_binary, is_list_view, is_text
from exec_nodes.arrow.nested import inner_fields

# A null takes so many bytes in a column of any type, and so does the place of a value.
_VALUE_BYTES = 8


def decoded_bytes(column: pa.Array | pa.ChunkedArray) -> int:
    """The bytes of a valid column once each row has its own values, without making them."""
    if not is_indirect(column.type):
        return int(column.nbytes)
    if isinstance(column, pa.ChunkedArray):
        return sum(map(_decoded_bytes, column.chunks))
    return _decoded_bytes(column)


def is_indirect(kind: pa.DataType) -> bool:
    """Whether columns of a type may name values that they do not have."""
    if kind.num_fields == 0:
        return bool(pa.types.is_null(kind) or pa.types.is_dictionary(kind))
    return (
        pa.types.is_run_end_encoded(kind)
        or is_list_view(kind)
        or any(is_indirect(field.type) for field in inner_fields(kind))
    )


def _decoded_bytes(array: pa.Array) -> int:
    kind = array.type
    if not is_indirect(kind):
        return int(array.nbytes)
    rows = len(array) * _VALUE_BYTES
    if pa.types.is_null(kind):
        return rows
    if pa.types.is_dictionary(kind):
        counts = np.bincount(array.indices.drop_null().to_numpy(), minlength=len(array.dictionary))
        return rows + _repeated(array.dictionary, counts)
    if pa.types.is_run_end_encoded(kind):
        first, runs = array.find_physical_offset(), array.find_physical_length()
        ends = array.run_ends.slice(first, runs).to_numpy().astype(np.int64) - array.offset
        counts = np.diff(np.minimum(ends, len(array)), prepend=0)
        return rows + _repeated(array.values.slice(first, runs), counts)
    if is_list_view(kind):
        elements = pc.sum(pc.list_value_length(array)).as_py() or 0
        return rows + int(elements * _mean(array.values))
    if pa.types.is_struct(kind):
        return sum(map(_decoded_bytes, array.flatten()))
    if pa.types.is_map(kind):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        entries = (array.keys, array.items)
        return rows + sum(_decoded_bytes(part.slice(first, last - first)) for part in entries)
    return rows + _decoded_bytes(array.flatten())


def _repeated(values: pa.Array, counts: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> int:
    """The bytes of values that occur so often; those of nested ones count alike."""
    if is_text(values.type) or is_binary(values.type):
        lengths = pc.binary_length(flat(values)).fill_null(0).to_numpy()
        return int(np.dot(lengths.astype(np.int64), counts))
    return int(counts.sum() * _mean(values))


def _mean(values: pa.Array) -> float:
    return decoded_bytes(values) / max(len(values), 1)
