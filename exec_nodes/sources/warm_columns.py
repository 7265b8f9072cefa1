"""Columns of a Lance table kept in memory once the rows fetched of them have paid for reading them.

Fetching ten rows from Lance costs as much time as reading about a megabyte in one go, and several
times what taking them from memory costs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from threading import Lock

import numpy as np
import pyarrow as pa

from exec_nodes.kernels.keys import one_array
from exec_nodes.sources.cache import ByteCache
from exec_nodes.sources.source import ROW_ADDRESS, RowAddresses

_BYTES_PER_FETCH = 1024 * 1024
_ADDRESS_BYTES = 8

ReadColumns = Callable[[Sequence[str]], pa.Table]


class WarmColumns:
    """The columns of one source that are in memory whole, in ascending row address.

    The `read` of a call gives some columns and `_rowaddr` of all rows; it is not kept, as a source
    that is in a cycle stays open until Python looks for cycles. Safe to use from several threads.
    """

    def __init__(self, identity: Hashable, cache: ByteCache) -> None:
        self._identity = identity
        self._cache = cache
        # By column: how often rows of it were fetched, how many rows and how many bytes.
        self._fetched: dict[str, tuple[int, int, int]] = {}
        self._lock = Lock()

    def column(self, name: str, read: ReadColumns) -> tuple[pa.Array, RowAddresses]:
        """A column of all rows and their addresses; kept if it fits."""
        found, addresses = self._kept(name), self._kept(ROW_ADDRESS)
        if found is None or addresses is None:
            table = read([name])
            addresses = one_array(table[ROW_ADDRESS])
            found = one_array(table[name])
            places = addresses.to_numpy()
            if not (places[1:] > places[:-1]).all():  # fragments after a compaction
                order = pa.array(np.argsort(places))
                found, addresses = found.take(order), addresses.take(order)
            for key, array in ((name, found), (ROW_ADDRESS, addresses)):
                self._cache.put((self._identity, "warm", key), array, array.nbytes)
        return found, addresses.to_numpy()

    def take(self, addresses: RowAddresses, schema: pa.Schema) -> pa.Table | None:
        """The columns of `schema` of the rows at these addresses, in the order asked; None if not
        all of them are in memory."""
        kept = [self._kept(name) for name in (ROW_ADDRESS, *schema.names)]
        held, *columns = [array for array in kept if array is not None] or [None]
        if held is None or len(columns) < len(schema):
            return None
        rows = pa.array(held.to_numpy().searchsorted(addresses))
        return pa.Table.from_arrays([column.take(rows) for column in columns], schema=schema)

    def fetched(self, found: pa.Table, rows: int, read: ReadColumns) -> None:
        """Note that rows were fetched from the source, which has so many; reads their columns
        whole once that is worth it and they are expected to fit."""
        if found.num_rows and self._is_paid(found, rows):
            for name in found.column_names:
                self.column(name, read)

    def _is_paid(self, found: pa.Table, rows: int) -> bool:
        """Count what was fetched; whether it is time to read the columns, which one caller is
        told."""
        total = paid = 0
        with self._lock:
            for name in found.column_names:
                calls, count, size = self._fetched.get(name, (0, 0, 0))
                calls, count, size = calls + 1, count + found.num_rows, size + found[name].nbytes
                self._fetched[name] = (calls, count, size)
                whole = rows * (size // count + _ADDRESS_BYTES)
                if whole > self._cache.largest:
                    return False
                if self._kept(name) is None:
                    total, paid = total + whole, max(paid, calls * _BYTES_PER_FETCH)
            if paid < total:
                return False
            for name in found.column_names:
                del self._fetched[name]
            return True

    def _kept(self, name: str) -> pa.Array | None:
        return self._cache.get((self._identity, "warm", name))
