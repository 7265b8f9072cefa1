"""One source's vectors of one column in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.vectors.metrics import Matrix

Addresses = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]
Squares = npt.NDArray[np.float64]

# Shorter vectors are measured exactly only: float32 has no such numbers.
_TINY = 1e-30
# Vectors are about equally long if no square is so many times the mean, and none near the largest
# float32.
_EVEN, _LARGEST = 16.0, 1e30
# Rows whose squares are summed at once, so that their copy in float64 stays in the caches.
_SQUARED_AT_ONCE = 4096


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
        valid: npt.NDArray[np.bool_] | None = None,
        squares: Callable[[VectorColumn], Squares] | None = None,
    ) -> None:
        """`squares` gives `squares` where the caller keeps some of them."""
        self.chunks = tuple(chunks)
        self.addresses = addresses
        self.valid = valid
        self._squares = squares

    @classmethod
    def decoded(
        cls,
        column: pa.ChunkedArray,
        addresses: Addresses,
        squares: Callable[[VectorColumn], Squares] | None = None,
    ) -> VectorColumn:
        """Of a column of fixed size lists of floats or uint8."""
        decoded = [_decoded(chunk) for chunk in column.chunks]
        valid = None
        if any(flags is not None for _, flags in decoded):
            flags = (np.ones(len(m), np.bool_) if v is None else v for m, v in decoded)
            valid = np.concatenate(list(flags))
        return cls([matrix for matrix, _ in decoded], addresses, valid, squares)

    def __len__(self) -> int:
        return len(self.addresses)

    @property
    def nbytes(self) -> int:
        """Bytes held once `squares` are known."""
        return sum(chunk.nbytes for chunk in self.chunks) + 4 * self.addresses.nbytes

    @cached_property
    def squares(self) -> Squares:
        """By position: the sum of the squares of a vector's elements."""
        return self.squares_from(0) if self._squares is None else self._squares(self)

    @cached_property
    def narrow_squares(self) -> Matrix:
        """`squares` in the column's type."""
        narrow: Matrix = self.squares.astype(self.kind, copy=False)
        return narrow

    @cached_property
    def longest(self) -> float | None:
        """The largest of `squares`, if one bound on rounding errors does for all rows: no square is
        infinite, far above the others, or too small to divide by."""
        squares = self.squares if self.valid is None else self.squares[self.valid]
        squares = squares[squares != 0]
        if not len(squares):
            return 0.0
        longest = float(squares.max())
        even = longest <= _EVEN * float(squares.mean()) and longest < _LARGEST
        return longest if even and float(squares.min()) > _TINY**2 else None

    @cached_property
    def invalid(self) -> Positions:
        """The positions of rows without a vector."""
        if self.valid is None:
            return np.empty(0, np.int64)
        return np.flatnonzero(~self.valid)

    @cached_property
    def without_length(self) -> Positions:
        """`invalid`, and the positions of zero vectors."""
        return np.concatenate([self.invalid, np.flatnonzero(self.squares == 0)])

    @cached_property
    def lengths(self) -> Matrix:
        """By position: the length of a vector, in the column's type; NaN where it is too small to
        divide by."""
        lengths = np.sqrt(self.squares)
        lengths[lengths < _TINY] = np.nan
        narrow: Matrix = lengths.astype(self.kind)
        return narrow

    @property
    def kind(self) -> np.dtype[Any]:
        """The type of the elements in memory."""
        return self.chunks[0].dtype if self.chunks else np.dtype(np.float32)

    def products(self, queries: Matrix) -> Matrix:
        """(queries, rows): the dot product of every query, of the column's type, and every row."""
        if len(self.chunks) == 1 and len(queries) == 1:
            only: Matrix = self.chunks[0] @ queries[0]
            return only[None, :]
        found = np.empty((len(queries), len(self)), queries.dtype)
        start = 0
        for chunk in self.chunks:
            np.matmul(queries, chunk.T, out=found[:, start : start + len(chunk)])
            start += len(chunk)
        return found

    def squares_from(self, start: int) -> Squares:
        """`squares` of the rows from a position on."""
        parts: list[Squares] = []
        for chunk in self.chunks:
            for low in range(min(start, len(chunk)), len(chunk), _SQUARED_AT_ONCE):
                rows = chunk[low : low + _SQUARED_AT_ONCE].astype(np.float64)
                parts.append(np.einsum("ij,ij->i", rows, rows))
            start = max(0, start - len(chunk))
        return np.concatenate(parts) if parts else np.empty(0, np.float64)

    def positions(self, addresses: Addresses) -> Positions:
        """The positions of rows that the source has, in the order asked."""
        if len(self) and int(self.addresses[-1] - self.addresses[0]) == len(self) - 1:
            offsets: Positions = (addresses - self.addresses[0]).astype(np.int64)
            return offsets
        found: Positions = self.addresses.searchsorted(addresses)
        return found

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

    def subset(self, positions: Positions) -> VectorColumn:
        """A copy of the rows at these positions, which are ascending."""
        valid = None if self.valid is None else self.valid[positions]
        return VectorColumn(
            [self.rows(positions)],
            self.addresses[positions],
            valid,
            lambda _: self.squares[positions],
        )


def _decoded(array: pa.FixedSizeListArray) -> tuple[Matrix, npt.NDArray[np.bool_] | None]:
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
