"""One row of a Lance table by its address."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from exec_nodes.lance.fragments import FRAGMENT_BITS
from exec_nodes.resident.columns import FragmentColumns
from exec_nodes.resident.warm_columns import WarmColumns

_OFFSET = (1 << FRAGMENT_BITS) - 1


class SingleRows:
    """Takes rows of one version of a table, which has `count` of them, each by itself: from Lance,
    or from memory once the rows taken have paid for reading their columns."""

    def __init__(
        self, dataset: Any, columns: FragmentColumns, warm: WarmColumns, count: int
    ) -> None:
        self._dataset = dataset
        self._columns = columns
        self._warm = warm
        self.count = count

    def at(self, address: int, schema: pa.Schema) -> pa.Table | None:
        """The columns of `schema`, all stored, of the row at an address; None if the version
        doesn't have it."""
        fragment = self._columns.fragments.get(address >> FRAGMENT_BITS)
        if fragment is None:
            return None
        found = self._warm.take(np.array([address], np.uint64), schema)
        if found is not None:
            return found if self._columns.has(fragment, address) else None
        found = self._fetched(fragment, address, schema.names)
        if found is not None:
            self._warm.fetched(found, self.count)
        return found

    def _fetched(self, fragment: Any, address: int, names: list[str]) -> pa.Table | None:
        if not fragment.num_deletions:
            return fragment.take([address & _OFFSET], columns=names)
        # By address, as a fragment counts its live rows only; deleted ones are left out.
        found = self._dataset._take_rows(pa.array([address], pa.uint64()), names)  # noqa: SLF001
        return found if found.num_rows else None
