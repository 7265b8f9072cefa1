"""Finds a key that occurs more than once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from exec_nodes.keys.codes import KeyCodes
from exec_nodes.keys.keys import key_column, one_array


def first_duplicate(keys: pa.Table) -> dict[str, Any] | None:
    """The first key of `keys` (its columns are the key columns) that occurs again, or None."""
    if keys.num_rows < 2:
        return None
    codes = KeyCodes(one_array(key_column(keys.columns))).codes
    seen = np.bincount(codes)
    again = np.flatnonzero(seen[codes] > 1)
    return keys.slice(int(again[0]), 1).to_pylist()[0] if len(again) else None
