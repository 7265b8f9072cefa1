"""Deletion files of Lance: which rows of a fragment are gone.

Lance tells them only as nulls among the row ids of all rows, which takes it 2 ms for 250,000 rows
and some more for the scan; the file is a few kilobytes. There are two kinds: an Arrow file with a
column `row_id` of uint32 offsets, in any order, and a Roaring bitmap in the portable form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyroaring

from exec_nodes.base.errors import MemWalError

Offsets = npt.NDArray[np.uint32]
ReadFile = Callable[[str], bytes]


def deleted_offsets(fragment: Any, read: ReadFile) -> Offsets | None:
    """The offsets of a fragment's deleted rows, in any order; None if Lance must be asked: the file
    is elsewhere, of another kind, or differs from the fragment's record.

    `read` gives the bytes of a file in the table's folder.
    """
    path, kept = fragment.deletion_file(), fragment.metadata.deletion_file
    if path is None or kept.base_id is not None:
        return None
    try:
        offsets = _decoded(path, read(path))
    except (MemWalError, OSError, ValueError, LookupError):
        return None
    return offsets if len(offsets) == kept.num_deleted_rows else None


def _decoded(path: str, data: bytes) -> Offsets:
    if path.endswith(".arrow"):
        with pa.ipc.open_file(data) as file:
            offsets: Offsets = file.read_all()["row_id"].to_numpy()
            return offsets
    return np.frombuffer(pyroaring.BitMap.deserialize(data).to_array(), np.uint32)
