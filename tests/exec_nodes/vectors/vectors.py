"""Vectors for tests, and distances by the plainest means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.vectors.column import VectorColumn

Matrix = npt.NDArray[Any]
Vector = Sequence[float] | None


def arrow(matrix: Matrix) -> pa.FixedSizeListArray:
    """The rows of a matrix as fixed size lists of its type."""
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1])


def column(matrix: Matrix, pieces: int = 1) -> VectorColumn:
    """A column of these rows in so many chunks; the address of row i is 10 + 2 i."""
    chunks = [arrow(part) for part in np.array_split(matrix, pieces)]
    addresses = np.arange(len(matrix), dtype=np.uint64) * 2 + 10
    return VectorColumn.decoded(pa.chunked_array(chunks, chunks[0].type), addresses)


def measured(metric: str, matrix: Matrix, query: Matrix) -> Matrix:
    """The distance of every row, in float32; NaN where there is none."""
    if metric == "hamming":
        bits = np.unpackbits(matrix, axis=1) != np.unpackbits(query)[None, :]
        return bits.sum(axis=1).astype(np.float32)
    rows, one = matrix.astype(np.float64), query.astype(np.float64)
    with np.errstate(all="ignore"):
        if metric == "l2":
            found = ((rows - one) ** 2).sum(axis=1)
        elif metric == "dot":
            found = 1 - (rows * one).sum(axis=1)
        else:
            lengths = np.sqrt((rows**2).sum(axis=1)) * np.sqrt((one**2).sum())
            found = np.clip(1 - (rows * one).sum(axis=1) / lengths, 0, 2)
        return found.astype(np.float32)
