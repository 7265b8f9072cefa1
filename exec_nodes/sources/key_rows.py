"""Where the keys of the base table are, kept in memory while that is cheap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.kernels.keys import one_array, plain
from exec_nodes.sources.lance_scan import MAX_BATCH_ROWS

# A lookup by btree takes 0.25 ms more than one by ordinal (1,000,000 rows, 2 cores), reading and
# sorting the keys 10 to 80 ns a row: after so many lookups the keys have paid for themselves.
ROWS_PER_LOOKUP = 10_000
BYTES_PER_ROW = 16


class KeyRows:
    """Finds the rows of integer keys, all different, by their ordinals: their places among the
    rows that a scan in order returns."""

    def __init__(self, dataset: Any, column: str) -> None:
        """Reads the keys; `is_integral` must hold for the type of `column`."""
        scanner = dataset.scanner(columns=[column], batch_size=MAX_BATCH_ROWS)
        keys = one_array(plain(scanner.to_table().column(0))).to_numpy()
        self._order: npt.NDArray[np.intp] | None = None
        if not (keys[1:] > keys[:-1]).all():
            self._order = np.argsort(keys)
            keys = keys[self._order]
        self._keys = keys
        self._fragments = dataset.get_fragments()
        counts = [fragment.count_rows() for fragment in self._fragments]
        self._starts = np.cumsum([0, *counts])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self._keys.nbytes + (0 if self._order is None else self._order.nbytes))

    def take(self, key: Any, columns: Sequence[str]) -> pa.Table | None:
        """The row of a key; None if it is not there."""
        keys = self._keys
        at = int(keys.searchsorted(keys.dtype.type(key)))
        if at == len(keys) or keys[at] != key:
            return None
        ordinal = at if self._order is None else int(self._order[at])
        fragment = int(self._starts.searchsorted(ordinal, side="right")) - 1
        return self._fragments[fragment].take(
            [ordinal - int(self._starts[fragment])], columns=list(columns)
        )


def is_integral(kind: pa.DataType) -> bool:
    """Whether `plain` turns a column of this type into integers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))
