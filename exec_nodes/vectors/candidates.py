"""What a search of one source finds: row addresses with their distances, by query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from exec_nodes.base.columns import RowAddresses
from exec_nodes.vectors.metrics import Distances


@dataclass(frozen=True, eq=False)
class Candidates:
    """Rows of one source, by query and then the nearest first; equally near ones by address.

    Attributes:
        queries: int32, the place of the query in its batch.
        addresses: uint64, the row.
        distances: float32, exact.
    """

    queries: npt.NDArray[np.int32]
    addresses: RowAddresses
    distances: Distances

    def __len__(self) -> int:
        return len(self.addresses)

    @classmethod
    def of(cls, found: Sequence[tuple[RowAddresses, Distances]], first: int = 0) -> Candidates:
        """Of the addresses and distances found for each query, in order; `first` is the place of
        the first one."""
        if len(found) == 1:
            [(addresses, distances)] = found
            return cls(np.full(len(addresses), first, np.int32), addresses, distances)
        counts = [len(addresses) for addresses, _ in found]
        places = np.arange(first, first + len(found), dtype=np.int32)
        return cls(
            np.repeat(places, counts),
            np.concatenate([np.empty(0, np.uint64), *(addresses for addresses, _ in found)]),
            np.concatenate([np.empty(0, np.float32), *(distances for _, distances in found)]),
        )

    def counts(self, queries: int) -> npt.NDArray[np.int64]:
        """Rows by query."""
        return np.bincount(self.queries, minlength=queries)

    def where(self, kept: npt.NDArray[np.bool_]) -> Candidates:
        """Those for which `kept` is true."""
        if kept.all():
            return self
        return Candidates(self.queries[kept], self.addresses[kept], self.distances[kept])

    def without(self, others: Candidates) -> Candidates:
        """Those that are not among `others`."""
        if not len(others):
            return self
        pair = np.dtype([("query", np.int32), ("address", np.uint64)])
        mine, theirs = np.empty(len(self), pair), np.empty(len(others), pair)
        for pairs, found in ((mine, self), (theirs, others)):
            pairs["query"], pairs["address"] = found.queries, found.addresses
        return self.where(~np.isin(mine, theirs))


def nearest_of(parts: Iterable[Candidates], most: int) -> Candidates:
    """The `most` nearest of each query among all parts."""
    parts = list(parts)
    if len(parts) == 1:
        together = parts[0]
    else:
        together = Candidates(
            np.concatenate([np.empty(0, np.int32), *(p.queries for p in parts)]),
            np.concatenate([np.empty(0, np.uint64), *(p.addresses for p in parts)]),
            np.concatenate([np.empty(0, np.float32), *(p.distances for p in parts)]),
        )
        order = np.lexsort((together.addresses, together.distances, together.queries))
        together = Candidates(
            together.queries[order], together.addresses[order], together.distances[order]
        )
    rank = np.arange(len(together)) - together.queries.searchsorted(together.queries)
    return together.where(rank < most)
