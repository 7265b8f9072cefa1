"""Row ids of a Lance table: what Lance takes rows by and masks them by."""

from __future__ import annotations

from typing import Any

import numpy as np

from exec_nodes.base.columns import ROW_ADDRESS, RowAddresses

_ROW_ID = "_rowid"


class RowIds:
    """From row addresses to the stable row ids that some tables have in their place."""

    def __init__(self, dataset: Any) -> None:
        """Reads the ids of all rows of `dataset`, which has stable row ids."""
        scanner = dataset.scanner(columns=[], with_row_id=True, with_row_address=True)
        rows = scanner.to_table()
        addresses = rows[ROW_ADDRESS].to_numpy()
        order = np.argsort(addresses)
        self._addresses: RowAddresses = addresses[order]
        self._ids: RowAddresses = rows[_ROW_ID].to_numpy()[order]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self._addresses.nbytes + self._ids.nbytes)

    def of(self, addresses: RowAddresses) -> RowAddresses:
        """The ids of rows that the table has, in the order of `addresses`."""
        return self._ids[self._addresses.searchsorted(addresses)]
