"""A table whose vectors have an index."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np

import memwal_sql as mw
from benchmarks.merging import vector_rows
from benchmarks.support.sizes import Sizes

_PART = 4  # of the rows of the merge benchmark: an index over them is trained here
_PARTITIONS = 64


def indexed_table(uri: Path, sizes: Sizes) -> tuple[mw.Table, int, int]:
    """The table, how many rows it has, and how many are to be merged into it at a time."""
    base, rows = sizes.base_rows // _PART, sizes.merge_rows // _PART
    lance.write_dataset(vector_rows(np.arange(base), 0), uri)
    table = mw.enable(uri, primary_key="id")
    table.create_index("vec", "IVF_FLAT", num_partitions=_PARTITIONS)
    return table, base, rows
