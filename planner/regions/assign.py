"""Grouping of rows by their region values, for the writer's router."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# Beyond this span a table indexed by value costs more than sorting.
_DENSE_SPAN = 65_536


def distinct_rows(table: pa.Table) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """The distinct rows of `table` (NULL equals NULL) and, per row, the index of its own.

    One column takes one pass: small integer ranges are counted, others dictionary-encoded.
    """
    codes: npt.NDArray[np.int64] | None = None
    for column in table.columns:
        own, size = _codes(column)
        codes = own if codes is None else _dense(codes * size + own)[1]
    if codes is None:
        raise ValueError("a table without columns has no distinct rows")
    first, index = _dense(codes)
    return table.take(pa.array(first)), index


def _codes(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], int]:
    """Row codes below the returned size, equal exactly where the values are equal."""
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], column.type)
    if pa.types.is_integer(array.type) and array.type.bit_width <= 32 and len(array):
        bounds = pc.min_max(array).as_py()
        low, high = bounds["min"], bounds["max"]
        if low is None:
            return np.zeros(len(array), np.int64), 1
        if high - low < _DENSE_SPAN:
            values = pc.fill_null(array, low).to_numpy(zero_copy_only=False).astype(np.int64)
            values -= low
            if array.null_count:
                values[np.asarray(pc.is_null(array))] = high - low + 1
            return values, high - low + 2
    encoded = pc.dictionary_encode(array, null_encoding="encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, max(1, len(encoded.dictionary))


def _dense(
    codes: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The row of one occurrence of each code, ascending by code, and each row's rank."""
    top = int(codes.max()) + 1 if len(codes) else 0
    if top > max(_DENSE_SPAN * 2, 2 * len(codes)):
        _, first, index = np.unique(codes, return_index=True, return_inverse=True)
        return first, index.astype(np.int64)
    row_of = np.full(top, -1, np.int64)
    row_of[codes] = np.arange(len(codes))
    present = row_of >= 0
    rank = np.cumsum(present) - 1
    return row_of[present], rank[codes]
