"""One source's vectors of one column in memory, and distances as Lance defines them.

`l2` is the squared Euclidean distance, `cosine` is 1 - cos, `dot` is 1 - dot product, `hamming`
counts different bits. The smaller, the nearer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from threading import Lock
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_native import VectorCodes
from memwal_native import distances as native_distances

Metric = Literal["l2", "cosine", "dot", "hamming"]
# The metrics of float vectors; uint8 vectors are compared by hamming.
FLOAT_METRICS: tuple[Metric, ...] = ("l2", "cosine", "dot")

# (rows, dimension): float16, float32, float64 or uint8.
Matrix = npt.NDArray[Any]
Vector = npt.NDArray[Any]
Distances = npt.NDArray[np.float32]

Addresses = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Bytes of a coded row in addition to one per element: its scale, its square and its error.
_ROW_BYTES = 12


def distances(metric: Metric, vectors: Matrix, query: Vector) -> Distances:
    """The distance of every row of `vectors` to `query`, NaN if there is none.

    Computed in float64 and rounded once, so that equal vectors have equal distances whatever
    source, type or order of summation they come from.
    """
    if metric == "hamming":
        return different_bits(vectors, query).astype(np.float32)
    if vectors.dtype == np.float16:
        vectors = vectors.astype(np.float32)
    encoded = native_distances(metric, np.ascontiguousarray(vectors), query.astype(np.float64))
    return np.frombuffer(encoded, np.float32)


def different_bits(vectors: Matrix, query: Vector) -> npt.NDArray[np.int64]:
    """The number of bits by which every row of `vectors` (uint8) differs from `query`."""
    if vectors.shape[1] % 8 == 0 and vectors.flags.c_contiguous:
        vectors, query = vectors.view(np.uint64), np.ascontiguousarray(query).view(np.uint64)
    bits: npt.NDArray[np.int64] = np.bitwise_count(vectors ^ query).sum(axis=1, dtype=np.int64)
    return bits


def code_bytes(dimension: int) -> int:
    """About how many bytes the code of a vector takes."""
    return dimension + _ROW_BYTES


class VectorColumn:
    """The vectors of all rows of a source in ascending row address; float16 is widened to float32,
    all else is a view of Arrow's memory.

    Attributes:
        chunks: matrices of the rows one after the other.
        addresses: by position: the row's address.
        valid: by position: whether the row has a vector without nulls; None if all have.
    """

    def __init__(
        self,
        chunks: Sequence[Matrix],
        addresses: Addresses,
        valid: Flags | None = None,
        codes: Callable[[VectorColumn, Metric], VectorCodes] | None = None,
    ) -> None:
        """`codes` gives `codes` where the caller keeps them; else they are kept here."""
        self.chunks = tuple(chunks)
        self.addresses = addresses
        self.valid = valid
        self._codes = codes
        self._kept: dict[Metric, VectorCodes] = {}
        self._lock = Lock()

    @classmethod
    def decoded(
        cls,
        column: pa.ChunkedArray,
        addresses: Addresses,
        codes: Callable[[VectorColumn, Metric], VectorCodes] | None = None,
    ) -> VectorColumn:
        """The vectors of a column of fixed size lists of floats or uint8."""
        decoded = [_decoded(chunk) for chunk in column.chunks]
        valid = None
        if any(flags is not None for _, flags in decoded):
            flags = [np.ones(len(m), np.bool_) if v is None else v for m, v in decoded]
            valid = np.concatenate(flags)
        return cls([matrix for matrix, _ in decoded], addresses, valid, codes)

    def __len__(self) -> int:
        return len(self.addresses)

    @property
    def nbytes(self) -> int:
        """Bytes held, without codes."""
        return sum([chunk.nbytes for chunk in self.chunks]) + self.addresses.nbytes

    @property
    def coded_bytes(self) -> int:
        """About how many bytes the codes for a metric take."""
        return len(self) * code_bytes(self.chunks[0].shape[1] if self.chunks else 0)

    @property
    def metrics(self) -> Collection[Metric]:
        """The metrics whose codes are kept here."""
        return tuple(self._kept)

    def codes(self, metric: Metric) -> VectorCodes:
        """All rows as the kernel for a metric has them, and perhaps later ones."""
        if self._codes is not None:
            return self._codes(self, metric)
        with self._lock:
            if metric not in self._kept:
                self._kept[metric] = self.coded(None, metric)
            return self._kept[metric]

    def coded(self, before: VectorCodes | None, metric: Metric) -> VectorCodes:
        """The codes `before` with the codes of the rows after them."""
        dimension = self.chunks[0].shape[1] if self.chunks else 1
        codes = VectorCodes(dimension, metric) if before is None else before
        start = 0
        for chunk in self.chunks:
            end = start + len(chunk)
            if len(codes) < end:
                valid = None if self.valid is None else self.valid[start:end].view(np.uint8)
                codes.extend(np.ascontiguousarray(chunk), start, valid)
            start = end
        return codes

    def rows(self, positions: Positions) -> Matrix:
        """The vectors at these positions, which are ascending."""
        if len(self.chunks) == 1:
            return self.chunks[0][positions]
        ends = np.cumsum([len(chunk) for chunk in self.chunks])
        cuts = [0, *positions.searchsorted(ends).tolist()]
        parts = [
            chunk[positions[low:high] - (end - len(chunk))]
            for chunk, end, low, high in zip(self.chunks, ends, cuts, cuts[1:], strict=False)
            if low < high
        ]
        return np.concatenate(parts) if parts else self.chunks[0][:0]


def _decoded(array: pa.FixedSizeListArray) -> tuple[Matrix, Flags | None]:
    """The matrix of a chunk, and which rows are vectors without nulls (None: all)."""
    dimension = array.type.list_size
    values = array.values.slice(array.offset * dimension, len(array) * dimension)
    valid = None
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
    if values.null_count:
        whole = values.is_valid().to_numpy(zero_copy_only=False)
        rows = whole.reshape(len(array), dimension).all(axis=1)
        valid = rows if valid is None else valid & rows
        values = values.fill_null(0)
    matrix = values.to_numpy(zero_copy_only=False).reshape(len(array), dimension)
    if matrix.dtype == np.float16:
        matrix = matrix.astype(np.float32)
    return matrix, valid
