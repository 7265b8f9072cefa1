"""Applying a stale set to a batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import memwal_native
from exec_nodes.arrow.filter_rows import Flags
from exec_nodes.base.columns import RowAddresses


def live_rows(addresses: RowAddresses, stale: RowAddresses) -> Flags | None:
    """By row, whether it is not stale; None if no row is.

    `addresses` are those of one batch, in any order; `stale` is sorted.
    """
    live = np.empty(len(addresses), np.bool_)
    at, gone = np.ascontiguousarray(addresses), np.ascontiguousarray(stale)
    count = memwal_native.flag_live(at, gone, live.view(np.uint8))
    return None if count == len(live) else live


def among(addresses: RowAddresses, rows: RowAddresses) -> Flags:
    """By address, whether it is one of `rows`, which are sorted."""
    others = live_rows(addresses, rows)
    return np.zeros(len(addresses), np.bool_) if others is None else ~others


def other_rows(count: int, rows: npt.NDArray[np.int32]) -> Flags | None:
    """By row below `count`, whether it is not among `rows`; None if none is."""
    if not len(rows):
        return None
    others = np.ones(count, np.bool_)
    others[rows] = False
    return others
