"""Applying a stale set to a batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from exec_nodes.sources.source import RowAddresses

# A table over the batch's address range is used up to so many slots a row; above, binary search.
_SLOTS_PER_ROW = 16


def live_rows(addresses: RowAddresses, stale: RowAddresses) -> npt.NDArray[np.int64] | None:
    """The indices of the rows that are not stale, ascending; None if no row is stale.

    `addresses` are those of one batch, in any order and at least one; `stale` is sorted.
    """
    count = len(addresses)
    ascending = bool((addresses[1:] > addresses[:-1]).all())
    low, high = (addresses[0], addresses[-1]) if ascending else (addresses.min(), addresses.max())
    start, end = stale.searchsorted(low), stale.searchsorted(high, side="right")
    if start == end:
        return None
    near = stale[start:end]
    slots = int(high - low) + 1
    if slots <= _SLOTS_PER_ROW * count:
        keep = np.ones(slots, np.bool_)
        keep[_offsets(near, low)] = False
        # Most batches of an unfiltered scan are a run of addresses: then slots are rows.
        in_row = ascending and slots == count
        live = np.flatnonzero(keep if in_row else keep[_offsets(addresses, low)])
    else:
        at = np.minimum(np.searchsorted(near, addresses), len(near) - 1)
        live = np.flatnonzero(near[at] != addresses)
    return None if len(live) == count else live


def other_rows(count: int, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
    """The positions below `count` that are not among `rows`, ascending; None if all are."""
    if not len(rows):
        return None
    keep = np.ones(count, np.bool_)
    keep[rows] = False
    return np.flatnonzero(keep)


def _offsets(addresses: RowAddresses, low: np.uint64) -> npt.NDArray[np.int64]:
    # As int64, which numpy indexes with twice as fast as with uint64.
    return (addresses - low).view(np.int64)
