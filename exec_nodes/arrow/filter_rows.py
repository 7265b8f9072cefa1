"""Some of the rows of a batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import memwal_native
from exec_nodes.arrow.ffi_alignment import aligned
from exec_nodes.base.columns import RowAddresses

Flags = npt.NDArray[np.bool_]


def keep_rows(batch: pa.RecordBatch, flags: Flags) -> pa.RecordBatch:
    """The rows whose flag is set."""
    return pa.record_batch(memwal_native.keep_rows(aligned(batch), flags.view(np.uint8)))


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
