"""Row masks in the form in which Lance takes them.

The bytes: u32 number of fragments, then for each its u32 id, u32 length and a portable Roaring
bitmap of the rows' offsets in it; all little-endian.
"""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pyroaring

from exec_nodes.base.columns import RowAddresses

_OFFSET_BITS = np.uint64(32)


def blocklist(row_ids: RowAddresses) -> bytes:
    """The mask of these rows, in any order."""
    ordered = np.sort(row_ids)
    fragments = (ordered >> _OFFSET_BITS).astype(np.uint32)
    offsets = ordered.astype(np.uint32)  # the low half
    cuts = [0, *(np.flatnonzero(fragments[1:] != fragments[:-1]) + 1).tolist(), len(ordered)]
    runs = [(low, high) for low, high in pairwise(cuts) if low < high]
    parts = [struct.pack("<I", len(runs))]
    for low, high in runs:
        rows = pyroaring.BitMap(offsets[low:high])
        rows.run_optimize()
        data = rows.serialize()
        parts += [struct.pack("<II", fragments[low], len(data)), data]
    return b"".join(parts)
