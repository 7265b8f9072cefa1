"""Keys as small integers, to join and to deduplicate them with array arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.kernels.keys import KeyColumn, one_array

Codes = npt.NDArray[np.int64]
Integers = npt.NDArray[np.int64] | npt.NDArray[np.uint64]

# A table by value is used for integers while it has at most this many slots a key, or this many.
_SLOTS_PER_KEY = 16
_SLOTS_ALWAYS = 1 << 20
_SLOTS_MOST = 1 << 27


class KeyCodes:
    """Numbers the distinct keys of a column: equal keys, and only they, have equal codes.

    Attributes:
        codes: int64, the code of every row.
        size: every code is below it.
    """

    def __init__(self, column: KeyColumn) -> None:
        array = one_array(column)
        self._first: np.int64 | np.uint64 | None = None
        values = _integers(array)
        if values is not None and len(values):
            low, high = values.min(), values.max()
            slots = int(high) - int(low) + 1
            if slots <= min(max(_SLOTS_PER_KEY * len(values), _SLOTS_ALWAYS), _SLOTS_MOST):
                self._first = low
                self.size = slots
                self.codes: Codes = (values - low).astype(np.int64, copy=False)
                # One slot more at either end, for everything out of range.
                self._present = np.zeros(slots + 2, np.bool_)
                self._present[1:][self.codes] = True
                return
        encoded = array.dictionary_encode()
        self._distinct = encoded.dictionary
        self.size = len(self._distinct)
        self.codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)

    @property
    def direct(self) -> bool:
        """Whether a code is the key's place in a range, so that `find` needs no preparation."""
        return self._first is not None

    def find(self, column: KeyColumn) -> tuple[Codes, Codes]:
        """The rows of another column whose key is among these, ascending, and their codes."""
        if self._first is None:
            found = pc.fill_null(pc.index_in(column, value_set=self._distinct), -1)
            codes = found.to_numpy(zero_copy_only=False) if len(found) else np.empty(0, np.int32)
            rows = np.flatnonzero(codes >= 0)
            return rows, codes[rows].astype(np.int64)
        values = _integers(one_array(column))
        if values is None:
            raise TypeError(f"keys of type {column.type} can't be found among integers")
        # What lies far out of range may wrap around; it lands on the other end then.
        below = np.array([self._first]).view(np.int64) - 1
        slots = values.view(np.int64) - below
        rows = np.flatnonzero(self._present.take(slots, mode="clip"))
        return rows, slots[rows] - 1


def repeated_later(column: KeyColumn) -> npt.NDArray[np.bool_]:
    """Which rows have a key that a later row has too."""
    keys = KeyCodes(column)
    return repeated_later_codes(keys.codes, np.empty(keys.size, np.int32))


def repeated_later_codes(codes: Codes, last: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """`repeated_later` for codes; `last` is scratch space with a slot for every code."""
    rows = np.arange(len(codes), dtype=last.dtype)
    last[codes] = rows  # of equal codes the last assignment stays
    repeated: npt.NDArray[np.bool_] = last[codes] != rows
    return repeated


def concat(columns: Sequence[KeyColumn]) -> pa.ChunkedArray:
    """Key columns of equal type, one after the other."""
    chunks: list[pa.Array] = []
    for column in columns:
        chunks += column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return pa.chunked_array(chunks, columns[0].type)


def _integers(array: pa.Array) -> Integers | None:
    values: Integers
    if pa.types.is_uint64(array.type):
        values = array.to_numpy()
        return values
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    if not pa.types.is_integer(array.type):
        return None
    values = array.to_numpy().astype(np.int64, copy=False)
    return values
