from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from exec_nodes.vectors.column import VectorColumn
from tests.exec_nodes.vectors.vectors import arrow, column

MATRIX = np.arange(60, dtype=np.float32).reshape(20, 3)
ADDRESSES = np.arange(20, dtype=np.uint64)


@pytest.mark.parametrize("pieces", [1, 3, 20])
def test_rows_are_found_in_any_chunk(pieces: int) -> None:
    held = column(MATRIX, pieces)
    rows = np.array([0, 5, 6, 13, 19])
    assert held.rows(rows).tolist() == MATRIX[rows].tolist()
    assert held.rows(rows[:0]).shape == (0, 3)
    part = held.subset(rows)
    assert part.addresses.tolist() == [10, 20, 22, 36, 48]
    assert part.squares.tolist() == (MATRIX[rows] ** 2).sum(axis=1).tolist()
    assert held.positions(part.addresses).tolist() == rows.tolist()
    queries = MATRIX[:3]
    assert held.products(queries).tolist() == (queries @ MATRIX.T).tolist()
    assert held.products(queries[:1]).tolist() == (queries[:1] @ MATRIX.T).tolist()


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
    assert bits.kind == np.uint8


def test_squares_are_summed_from_any_row_on() -> None:
    held = column(MATRIX, 4)
    whole = (MATRIX.astype(np.float64) ** 2).sum(axis=1)
    for start in (0, 1, 5, 7, 19, 20):
        assert held.squares_from(start).tolist() == whole[start:].tolist()


def test_float16_is_widened() -> None:
    held = column(MATRIX.astype(np.float16))
    assert held.kind == np.float32
    assert held.chunks[0].tolist() == MATRIX.tolist()
