"""Finds the rows of a source that belong to given keys."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.base.columns import RowAddresses
from exec_nodes.keys.bloom import BloomFilter
from exec_nodes.keys.codes import KeyCodes, Rows
from exec_nodes.keys.hashing import written_by_native
from exec_nodes.keys.keys import KeyBatch, key_column

Positions = npt.NDArray[np.int64]

# Below this, Python's integers beat numpy's overhead.
_FEW_KEYS = 8


def bloom_hits(bloom: BloomFilter, keys: KeyBatch) -> npt.NDArray[np.bool_]:
    """One flag a key: False only if the filter's source holds no such key.

    Native's writer leaves the values of some key types out of its filters (see `key_hash`), and a
    file does not say who wrote it: for such types a key counts as held by either hash.
    """
    if len(keys) <= _FEW_KEYS:
        check = bloom.check_one
        return np.array([check(a) or (b != a and check(b)) for a, b in keys.few_hashes], np.bool_)
    hits = bloom.check(keys.hashes)
    if not all(written_by_native([column.type for column in keys.table.columns])):
        hits |= bloom.check(keys.native_writer_hashes)
    return hits


def rows_of_keys(table: pa.Table, keys: KeyBatch) -> tuple[Rows, Positions]:
    """The rows of `table`, which has the key columns, whose key is asked for, ascending, and the
    position of each one's key in `keys`."""
    codes = KeyCodes(keys.column)
    rows, positions = codes.find(key_column(table.select(keys.names).columns))
    position = np.empty(codes.size, np.int64)
    position[codes.codes] = np.arange(len(keys))
    return rows, position[positions]


def last_rows(addresses: RowAddresses, positions: Positions) -> Positions:
    """The row with the highest address for each key position; ascending
    indices into both arguments."""
    order = np.lexsort((addresses, positions))
    ordered = positions[order]
    last = np.append(ordered[1:] != ordered[:-1], True) if len(ordered) else np.empty(0, np.bool_)
    return np.sort(order[last])
