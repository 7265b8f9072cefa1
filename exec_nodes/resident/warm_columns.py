"""Columns of a Lance table kept in memory once the rows fetched of them have paid for reading them.

Fetching ten rows from Lance costs as much time as reading about a megabyte in one go, and several
times what taking them from memory costs.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from exec_nodes.base.columns import RowAddresses
from exec_nodes.base.tasks import in_background
from exec_nodes.lance.fragments import FRAGMENT_BITS
from exec_nodes.lance.scan import conform, row_bytes
from exec_nodes.resident.columns import FragmentColumns

_BYTES_PER_FETCH = 1024 * 1024
_ADDRESS_BYTES = 8
# What a merge wrote of columns that are kept, up to so many bytes, is read by the first fetch.
_READ_INLINE = 8 * 1024 * 1024


class WarmColumns:
    """Takes rows of one version of a table from memory. Safe to use from several threads."""

    def __init__(self, columns: FragmentColumns) -> None:
        self._columns = columns

    def take(self, addresses: RowAddresses, schema: pa.Schema) -> pa.Table | None:
        """The columns of `schema` of the rows at these addresses, in the order asked; None if they
        are better fetched."""
        stored = self._stored(schema)
        if not stored.names or not self._columns.known(stored):
            return None
        numbers = addresses >> np.uint64(FRAGMENT_BITS)
        touched = [self._columns.fragments[number] for number in np.unique(numbers).tolist()]
        rows = [np.flatnonzero(numbers == fragment.fragment_id) for fragment in touched]
        asked = [(one, addresses[own]) for one, own in zip(touched, rows, strict=True)]
        taken = [self._columns.rows(one, own, stored) for one, own in asked]
        unread = [one for one, found in zip(touched, taken, strict=True) if found is None]
        count = sum(fragment.physical_rows for fragment in unread)
        if 0 < count * row_bytes(stored) <= _READ_INLINE:
            self._columns.keep(unread, stored)
            taken = [self._columns.rows(one, own, stored) for one, own in asked]
        pieces = [found for found in taken if found is not None]
        if not pieces or len(pieces) < len(touched):
            return None
        found = pa.concat_batches(pieces)
        if len(pieces) > 1:
            found = found.take(pa.array(np.argsort(np.concatenate(rows))))
        return pa.Table.from_batches([conform(found, schema)])

    def fetched(self, found: pa.Table, count: int) -> None:
        """Note that rows were fetched from the table, which has `count`; reads their columns whole,
        in the background, once that is worth it and they are expected to fit."""
        stored = self._stored(found.schema)
        if not found.num_rows or not stored.names:
            return
        sizes = [found[name].nbytes // found.num_rows + _ADDRESS_BYTES for name in stored.names]
        if max(sizes) * count > self._columns.largest:
            return
        if self._columns.pays("fetch", stored, _BYTES_PER_FETCH, sum(sizes) * count):
            fragments = self._columns.fragments.values()
            in_background(partial(self._columns.keep, fragments, stored))

    def _stored(self, schema: pa.Schema) -> pa.Schema:
        return pa.schema([field for field in schema if field.name in self._columns.ids])
