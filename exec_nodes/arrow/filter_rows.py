"""Some of the rows of a batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import memwal_native
from exec_nodes.base.columns import RowAddresses
from exec_nodes.base.lazy import lazy_property

Flags = npt.NDArray[np.bool_]


def keep_rows(batch: pa.RecordBatch, flags: Flags) -> pa.RecordBatch:
    """The rows whose flag is set."""
    keep = _Keep(flags)
    if not batch.num_columns:
        return batch.slice(0, keep.count)
    return pa.RecordBatch.from_arrays(list(map(keep.of, batch.columns)), schema=batch.schema)


class _Keep:
    def __init__(self, flags: Flags) -> None:
        self._flags = flags
        self.count = int(np.count_nonzero(flags))

    def of(self, column: pa.Array) -> pa.Array:
        if column.null_count:
            return self._taken(column)
        kind = column.type
        if pa.types.is_fixed_size_list(kind) and kind.list_size:
            values = column.flatten()
            if _is_plain(values):
                return pa.FixedSizeListArray.from_arrays(
                    self._compressed(values, kind.list_size), type=kind
                )
        return self._compressed(column) if _is_plain(column) else self._taken(column)

    def _compressed(self, values: pa.Array, a_row: int = 1) -> pa.Array:
        """`values`, this many per row, by a kernel that is several times as fast as taking."""
        width = values.type.bit_width // 8
        kept = pa.allocate_buffer(self.count * a_row * width)
        packed = values.buffers()[1].slice(values.offset * width, len(values) * width)
        memwal_native.compress(packed, self._flags.view(np.uint8), kept)
        return pa.Array.from_buffers(values.type, self.count * a_row, [None, kept])

    def _taken(self, column: pa.Array) -> pa.Array:
        return pc.take(column, self._positions, boundscheck=False)

    @lazy_property
    def _positions(self) -> pa.Array:
        return pa.array(np.flatnonzero(self._flags))


def _is_plain(array: pa.Array) -> bool:
    """Whether its values are all there is to it, and whole bytes each."""
    kind = array.type
    return pa.types.is_primitive(kind) and not array.null_count and kind.bit_width % 8 == 0


def live_rows(addresses: RowAddresses, stale: RowAddresses) -> Flags | None:
    """For each row, whether it is not stale; None if no row is.

    `addresses` are the row addresses of one batch, in any order; `stale` is sorted.
    """
    live = np.empty(len(addresses), np.bool_)
    at, gone = np.ascontiguousarray(addresses), np.ascontiguousarray(stale)
    count = memwal_native.flag_live(at, gone, live.view(np.uint8))
    return None if count == len(live) else live


def among(addresses: RowAddresses, rows: RowAddresses) -> Flags:
    """For each address, whether it is among `rows`, which are sorted."""
    others = live_rows(addresses, rows)
    return np.zeros(len(addresses), np.bool_) if others is None else ~others


def other_rows(count: int, rows: npt.NDArray[np.int32]) -> Flags | None:
    """For each row below `count`, whether it is not among `rows`; None if all are not."""
    if not len(rows):
        return None
    others = np.ones(count, np.bool_)
    others[rows] = False
    return others
