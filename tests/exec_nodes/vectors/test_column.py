from __future__ import annotations

import numpy as np
import pyarrow as pa

from exec_nodes.vectors.column import VectorColumn
from tests.exec_nodes.vectors.vectors import arrow, column

MATRIX = np.arange(60, dtype=np.float32).reshape(20, 3)
ADDRESSES = np.arange(20, dtype=np.uint64)


def test_float32_is_not_copied() -> None:
    values = arrow(MATRIX)
    held = VectorColumn.decoded(pa.chunked_array([values, values.slice(4, 2)]), ADDRESSES)
    assert [np.shares_memory(c, values.values.to_numpy()) for c in held.chunks] == [True, True]
    assert held.chunks[1].tolist() == MATRIX[4:6].tolist()


def test_nulls_in_and_of_vectors_make_rows_invalid() -> None:
    kind = pa.list_(pa.float32(), 2)
    array = pa.array([[1, 2], None, [3, None], [4, 5], None, [6, 7]], kind)
    held = VectorColumn.decoded(pa.chunked_array([array.slice(1), array.slice(0, 1)]), ADDRESSES)
    assert held.valid is not None
    assert held.valid.tolist() == [False, False, True, False, True, True]
    assert held.rows(np.array([2, 4, 5])).tolist() == [[4, 5], [6, 7], [1, 2]]
    bits = VectorColumn.decoded(
        pa.chunked_array([pa.array([[1, None], [255, 0]], pa.list_(pa.uint8(), 2))]), ADDRESSES
    )
    assert bits.valid is not None
    assert bits.valid.tolist() == [False, True]
    assert bits.chunks[0].dtype == np.uint8


def test_float16_is_widened() -> None:
    held = column(MATRIX.astype(np.float16))
    assert held.chunks[0].dtype == np.float32
    assert held.chunks[0].tolist() == MATRIX.tolist()
