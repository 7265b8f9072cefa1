"""Columns of a caller in the layout that tables have: lists instead of views of them, values
instead of runs, and the storage of extension types."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import is_json, is_list_view


def plain(column: pa.Array | pa.ChunkedArray, target: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """A valid column for a column of type `target`: without runs and views of lists, and as the
    storage of its type if that is what the target stores, or if it is JSON with texts of another
    type; itself if it is so."""
    kind = column.type
    if not (
        pa.types.is_run_end_encoded(kind)
        or is_list_view(kind)
        or isinstance(kind, pa.BaseExtensionType)
    ):
        return column
    if isinstance(column, pa.Array):
        return _plain(column, target)
    chunks = [_plain(chunk, target) for chunk in column.chunks]
    return pa.chunked_array(chunks, None if chunks else _plain(pa.nulls(0, kind), target).type)


def _plain(array: pa.Array, target: pa.DataType) -> pa.Array:
    kind = array.type
    if pa.types.is_run_end_encoded(kind):
        return plain(pc.run_end_decode(array), target)
    if is_list_view(kind):
        return _lists(array)
    is_other = isinstance(kind, pa.BaseExtensionType) and kind != target
    if is_other and (kind.storage_type == target or is_json(kind)):
        return array.storage
    return array


def _lists(views: pa.Array) -> pa.Array:
    """Arrow's own cast leaves out elements behind a list that is null or empty."""
    lengths = pc.list_value_length(views).fill_null(0).to_numpy()
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    lists = pa.LargeListArray.from_arrays(
        pa.array(ends, pa.int64()), pc.list_flatten(views), mask=views.is_null()
    )
    return lists.cast(pa.list_(views.type.value_field)) if ends[-1] < 2**31 else lists
