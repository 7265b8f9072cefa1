"""Applying a stale set to a batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from exec_nodes.source import RowAddresses

# A table over the batch's address range is used up to so many slots a row; above, binary search.
_SLOTS_PER_ROW = 16


def live_rows(addresses: RowAddresses, stale: RowAddresses) -> npt.NDArray[np.int64] | None:
    """The indices of the rows that are not stale, ascending; None if no row is stale.

    `addresses` are those of one batch, in any order and at least one; `stale` is sorted.
    """
    low, high = addresses.min(), addresses.max()
    start, end = np.searchsorted(stale, [low, high + np.uint64(1)])
    if start == end:
        return None
    near = stale[start:end]
    slots = int(high - low) + 1
    if slots <= _SLOTS_PER_ROW * len(addresses):
        keep = np.ones(slots, np.bool_)
        keep[near - low] = False
        live = np.flatnonzero(keep[addresses - low])
    else:
        at = np.minimum(np.searchsorted(near, addresses), len(near) - 1)
        live = np.flatnonzero(near[at] != addresses)
    return None if len(live) == len(addresses) else live
