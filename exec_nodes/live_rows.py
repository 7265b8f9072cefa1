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
    count = len(addresses)
    low, high = addresses[0], addresses[-1]
    in_row = int(high) - int(low) == count - 1 and np.array_equal(addresses - low, _counting(count))
    if not in_row:
        low, high = addresses.min(), addresses.max()
    start = np.searchsorted(stale, low)
    end = np.searchsorted(stale, high, side="right")
    if start == end:
        return None
    near = stale[start:end]
    slots = int(high - low) + 1
    if slots <= _SLOTS_PER_ROW * count:
        keep = np.ones(slots, np.bool_)
        keep[near - low] = False
        # Most batches of an unfiltered scan are a run of addresses: then slots are rows.
        live = np.flatnonzero(keep if in_row else keep[addresses - low])
    else:
        at = np.minimum(np.searchsorted(near, addresses), len(near) - 1)
        live = np.flatnonzero(near[at] != addresses)
    return None if len(live) == count else live


_numbers = np.arange(1 << 16, dtype=np.uint64)


def _counting(count: int) -> RowAddresses:
    """0, 1, ... below `count`."""
    if count <= len(_numbers):
        return _numbers[:count]
    return np.arange(count, dtype=np.uint64)
