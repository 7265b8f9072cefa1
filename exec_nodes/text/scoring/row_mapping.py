"""Which row of a Lance table an index entry stands for, and whether it is still there."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from exec_nodes.base.columns import RowAddresses
from exec_nodes.base.lazy import lazy_property
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.text.postings.protocol import Live

_FRAGMENT_BITS = np.uint64(32)
_NOWHERE = np.uint64(2**64 - 1)


class RowsOf:
    """The rows of one version of a Lance table; what is asked of it is read once."""

    def __init__(self, source: LanceSource) -> None:
        self._source = source

    def of_index(
        self, row_ids: RowAddresses, fragments: Collection[int]
    ) -> tuple[RowAddresses, Live]:
        """The addresses of an index's row ids, and which of these rows are no more.

        Only rows in the fragments that the index covers count: one with a stable row id may have
        moved on with another text.
        """
        stable = self._source.dataset.has_stable_row_ids
        addresses, gone = self.of_fragments(
            self._by_stable_id(row_ids) if stable else row_ids, fragments
        )
        # Another entry may stand for the row where it is now.
        return np.where(gone, _NOWHERE, addresses) if stable else addresses, gone

    def of_fragments(
        self, addresses: RowAddresses, fragments: Collection[int]
    ) -> tuple[RowAddresses, Live]:
        """The addresses, and which of these rows are no more, or not in `fragments`: another
        document stands for a row of another fragment, with the value that it has now."""
        outside = ~_within(addresses, fragments)
        gone = outside | self._deleted(addresses)
        return np.where(outside, _NOWHERE, addresses) if outside.any() else addresses, gone

    def _deleted(self, addresses: RowAddresses) -> Live:
        """By row: whether it is in a deletion vector."""
        if not self._has_deletions:
            return np.zeros(len(addresses), np.bool_)
        live = self._live
        places = live.searchsorted(addresses)
        gone: Live = places == len(live)
        gone[~gone] = live[places[~gone]] != addresses[~gone]
        return gone

    def _by_stable_id(self, row_ids: RowAddresses) -> RowAddresses:
        ids = self._source.row_ids(self._live)
        order = np.argsort(ids)
        places = ids[order].searchsorted(row_ids)
        found = places < len(ids)
        found[found] = ids[order][places[found]] == row_ids[found]
        addresses = np.full(len(row_ids), _NOWHERE)
        addresses[found] = self._live[order][places[found]]
        return addresses

    @lazy_property
    def _has_deletions(self) -> bool:
        fragments = self._source.dataset.get_fragments()
        return any(fragment.metadata.deletion_file is not None for fragment in fragments)

    @lazy_property
    def _live(self) -> RowAddresses:
        return self._source.matching(())


def _within(addresses: RowAddresses, fragments: Collection[int]) -> Live:
    """By row: whether it is in one of the fragments."""
    numbers = (addresses >> _FRAGMENT_BITS).astype(np.int64)
    wanted = np.array(sorted(fragments), np.int64)
    if not len(wanted):
        return np.zeros(len(addresses), np.bool_)
    places = np.minimum(wanted.searchsorted(numbers), len(wanted) - 1)
    inside: Live = wanted[places] == numbers
    return inside
