"""Distances between vectors, as Lance defines them.

`l2` is the squared Euclidean distance, `cosine` is 1 - cos, `dot` is 1 - dot product, `hamming`
counts different bits. The smaller, the nearer.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from memwal_native import distances as native_distances

Metric = Literal["l2", "cosine", "dot", "hamming"]
# Of float vectors; uint8 vectors are compared by hamming.
FLOAT_METRICS: tuple[Metric, ...] = ("l2", "cosine", "dot")

# (rows, dimension): float16, float32, float64 or uint8.
Matrix = npt.NDArray[Any]
Vector = npt.NDArray[Any]
Distances = npt.NDArray[np.float32]


def distances(metric: Metric, vectors: Matrix, query: Vector) -> Distances:
    """The distance of every row of `vectors` to `query`, NaN where there is none.

    Computed in float64 and rounded once, so that equal vectors have equal distances whatever
    source, type or order of summation they come from.
    """
    if metric == "hamming":
        return different_bits(vectors, query).astype(np.float32)
    if vectors.dtype == np.float16:
        vectors = vectors.astype(np.float32)
    found = native_distances(metric, np.ascontiguousarray(vectors), query.astype(np.float64))
    return np.frombuffer(found, np.float32)


def different_bits(vectors: Matrix, query: Vector) -> npt.NDArray[np.int64]:
    """How many bits of every row of `vectors` (uint8) differ from `query`."""
    if vectors.shape[1] % 8 == 0 and vectors.flags.c_contiguous:
        vectors, query = vectors.view(np.uint64), np.ascontiguousarray(query).view(np.uint64)
    bits: npt.NDArray[np.int64] = np.bitwise_count(vectors ^ query).sum(axis=1, dtype=np.int64)
    return bits
