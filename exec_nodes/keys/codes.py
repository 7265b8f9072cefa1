"""Keys as small integers, to join and to deduplicate them with array arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import memwal_native
from exec_nodes.keys.keys import KeyColumn, key_column, one_array

Codes = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int32]
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
        self._first: int | None = None
        values = _integers(array)
        if values is not None and len(values):
            low, high = values.min(), values.max()
            slots = int(high) - int(low) + 1
            if slots <= min(max(_SLOTS_PER_KEY * len(values), _SLOTS_ALWAYS), _SLOTS_MOST):
                self._first = int(low.view(np.int64))
                self.size = slots
                self.codes: Codes = (values - low).view(np.int64)
                self._present = np.zeros(slots, np.uint8)
                memwal_native.mark(self.codes, self._present, 1)
                return
        encoded = array.dictionary_encode()
        self._distinct = encoded.dictionary
        self.size = len(self._distinct)
        self.codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)

    @property
    def direct(self) -> bool:
        """Whether a code is the key's place in a range, so that `find` needs no preparation."""
        return self._first is not None

    def find(self, column: KeyColumn) -> tuple[Rows, Codes]:
        """The rows of another column whose key is among these, ascending, and their codes."""
        if self._first is None:
            indexes = pc.fill_null(pc.index_in(column, value_set=self._distinct), -1)
            at = indexes.to_numpy(zero_copy_only=False) if len(indexes) else np.empty(0, np.int32)
            places = np.flatnonzero(at >= 0)
            return places.astype(np.int32), at[places].astype(np.int64)
        values = _integers(one_array(column))
        if values is None:
            raise TypeError(f"keys of type {column.type} can't be found among integers")
        rows, codes = np.empty(len(values), np.int32), np.empty(len(values), np.int64)
        count = memwal_native.find_marked(
            values.view(np.int64), self._first, self._present, rows, codes
        )
        return rows[:count], codes[:count]


def repeated_later(column: KeyColumn) -> Rows:
    """The rows, ascending, whose key a later row has too."""
    keys = KeyCodes(column)
    return superseded(keys.codes, np.zeros(len(keys.codes), np.bool_), code_set(keys))


def code_set(keys: KeyCodes) -> npt.NDArray[np.uint8]:
    """No code yet, for `superseded`."""
    return np.zeros(keys.size, np.uint8)


def superseded(codes: Codes, deleted: npt.NDArray[np.bool_], seen: npt.NDArray[np.uint8]) -> Rows:
    """The rows, ascending, that are deleted, or whose code is in `seen` or comes again later.

    All codes are in `seen` after the call.
    """
    rows = np.empty(len(codes), np.int32)
    count = memwal_native.superseded(codes, deleted.view(np.uint8), seen, rows)
    return rows[len(rows) - count :]


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


def first_duplicate(keys: pa.Table) -> dict[str, Any] | None:
    """The first key of `keys` (its columns are the key columns) that occurs again, or None."""
    if keys.num_rows < 2:
        return None
    codes = KeyCodes(one_array(key_column(keys.columns))).codes
    seen = np.bincount(codes)
    again = np.flatnonzero(seen[codes] > 1)
    return keys.slice(int(again[0]), 1).to_pylist()[0] if len(again) else None
