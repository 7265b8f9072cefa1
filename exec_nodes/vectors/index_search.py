"""Asking the vector index of a Lance table for candidates."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyroaring

from exec_nodes.arrow.filter_rows import live_rows
from exec_nodes.base.columns import ROW_ADDRESS, RowAddresses
from exec_nodes.base.counting import lance_reads
from exec_nodes.base.index_info import IndexInfo
from exec_nodes.base.thresholds import Thresholds
from exec_nodes.lance.errors import lance_errors
from exec_nodes.lance.indexes import indexes_of
from exec_nodes.lance.reading import rows_of
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.vectors.nearest import NearestQuery
from exec_nodes.vectors.resident import derived

ALL_PROBES = 1_000_000
# Candidates for each row asked for, measured to give recall 0.99 (PQ: 4 bits a dimension).
_REFINE = {"PQ": 10, "RQ": 10, "SQ": 4}
# Up to this share of masked rows, more candidates are asked for and the masked ones dropped: a mask
# of 24,000 rows makes Lance's search of 200,000 half as slow again.
_MASKED_LATER = 0.3

Queries = npt.NDArray[np.int32]

_OFFSET_BITS = np.uint64(32)


class IndexUse(Thresholds):
    """The way an index is searched, and when it is not."""

    # Partitions probed where every row is live and matches: recall 0.99 on 200,000 clustered
    # vectors in 256 partitions.
    probes = 20
    # The least number of candidates: the few nearest may be anywhere among them.
    fewest_refined = 50
    # Rows that count are measured one by one if they are at most this share of all: probing in
    # proportion to the others would leave out few partitions.
    few_share = 20
    few_least, few_most = 2_000, 50_000


@dataclass(frozen=True)
class IndexSearch:
    """One source's index, and the rows of the source that count.

    Attributes:
        condition: a filter in Lance's dialect; None for none.
        mask: sorted addresses of rows that don't count.
        share: about how much of the rows counts.
    """

    source: LanceSource
    index: IndexInfo
    query: NearestQuery
    condition: str | None
    mask: RowAddresses
    share: float

    def attempts(self, most: int) -> Iterator[tuple[Queries, RowAddresses]]:
        """Rows that are likely to include the `most` nearest of each query, query by query; ever
        more thoroughly, the last time from every partition.

        Rows that the index does not cover are searched too, unless the source is a share of its
        table: those fragments are covered. Fewer than `most` rows may come for a query though
        more count.
        """
        size = self._refined(most)
        if self.condition is None and 0 < len(self.mask) <= self.source.rows * _MASKED_LATER:
            live = self._unmasked(size)
            if np.bincount(live[0], minlength=len(self.query.vectors)).min() >= size:
                yield live
        for probes in (self._probes, ALL_PROBES):
            yield self._asked(size, probes, self._blocked if len(self.mask) else None)

    def _unmasked(self, size: int) -> tuple[Queries, RowAddresses]:
        """Live rows among as many additional candidates as rows are masked: a mask costs Lance
        more."""
        spare = len(self.mask) / self.source.rows
        queries, addresses = self._asked(int(size * (1 + 2 * spare)) + 8, self._probes, None)
        live = live_rows(addresses, self.mask) if len(addresses) else None
        return (queries, addresses) if live is None else (queries[live], addresses[live])

    def _asked(self, size: int, probes: int, blocked: bytes | None) -> tuple[Queries, RowAddresses]:
        query, dataset = self.query, self.source.dataset
        nearest: dict[str, Any] = {
            "column": query.column,
            "q": query.vectors if query.queries > 1 else query.vectors[0],
            "k": size,
            "metric": query.metric,
            "nprobes": probes,
        }
        if query.ef is not None:
            nearest["ef"] = max(query.ef, size)
        with lance_errors(self.source.name, self.source.uri):
            rows = rows_of(
                dataset.scanner(
                    columns=["_distance"],
                    nearest=nearest,
                    prefilter=True,
                    filter=self.condition,
                    row_addr_blocklist=blocked,
                    with_row_address=True,
                    scan_stats_callback=lance_reads(),
                    fast_search=self.source.fragments is not None,
                    **self._chosen(dataset),
                )
            )
        addresses = rows[ROW_ADDRESS].to_numpy()
        if query.queries == 1:
            return np.zeros(len(addresses), np.int32), addresses
        return rows["query_index"].to_numpy(), addresses

    def _refined(self, most: int) -> int:
        factor = self.query.refine_factor
        if factor is not None:
            return most * factor
        factors = [f for name, f in _REFINE.items() if self.index.kind.upper().endswith(name)]
        return max(most * factors[0], IndexUse.fewest_refined) if factors else most

    @property
    def _probes(self) -> int:
        asked = self.query.nprobes or IndexUse.probes
        return min(ALL_PROBES, int(np.ceil(asked / max(self.share, 1e-6))))

    @property
    def _blocked(self) -> bytes:
        source, mask = self.source, self.mask
        return derived(source, "blocklist", mask, lambda: blocklist(source.row_ids(mask)), len)

    def _chosen(self, dataset: Any) -> dict[str, Any]:
        """If the column has several indexes, Lance takes the first, whatever its metric."""
        on_column = [
            i for i in indexes_of(dataset, self.source.name) if i.field_names == [self.query.column]
        ]
        if len(on_column) < 2:
            return {}
        segments = [s.uuid for i in on_column if i.name == self.index.name for s in i.segments]
        if self.source.fragments is not None:
            return {"index_segments": segments}
        # Fragments are named too, as only then those are searched that the index does not cover.
        return {"index_segments": segments, "fragments": dataset.get_fragments()}


def few_rows(
    source: LanceSource, condition: str | None, mask: RowAddresses
) -> RowAddresses | float:
    """The rows that meet `condition` and are not masked, sorted, if they are so few that measuring
    them all is better than asking an index; otherwise about their share of all rows."""
    rows = source.rows
    most = min(max(rows // IndexUse.few_share, IndexUse.few_least), IndexUse.few_most)
    share = (rows - len(mask)) / max(1, rows)
    if condition is None:
        return share if share * rows > most else _without(source.matching(()), mask)
    with lance_errors(source.name, source.uri):
        scanner = source.dataset.scanner(
            columns=[],
            filter=condition,
            limit=most + 1,
            with_row_address=True,
            fragments=source.fragments,
            scan_stats_callback=lance_reads(),
        )
        addresses = rows_of(scanner)[ROW_ADDRESS].to_numpy()
    if len(addresses) <= most:
        return _without(np.sort(addresses), mask)
    return share * len(addresses) / _rows_up_to(source.dataset, addresses[-1])


def _without(rows: RowAddresses, mask: RowAddresses) -> RowAddresses:
    live = live_rows(rows, mask) if len(rows) else None
    return rows if live is None else rows[live]


def _rows_up_to(dataset: Any, address: np.uint64) -> int:
    """About how many rows a scan in order passes until this one."""
    fragment, offset = divmod(int(address), 1 << 32)
    before = 0
    for part in dataset.get_fragments():
        if part.fragment_id == fragment:
            break
        before += part.metadata.num_rows
    return before + offset + 1


def blocklist(row_ids: RowAddresses) -> bytes:
    """The mask of these rows, in any order, as Lance takes it: u32 number of fragments, then for
    each its u32 id, u32 length and a portable Roaring bitmap of the rows' offsets in it; all
    little-endian."""
    ordered = np.sort(row_ids)
    fragments = (ordered >> _OFFSET_BITS).astype(np.uint32)
    offsets = ordered.astype(np.uint32)  # the low half
    cuts = [0, *(np.flatnonzero(fragments[1:] != fragments[:-1]) + 1).tolist(), len(ordered)]
    runs = [(low, high) for low, high in pairwise(cuts) if low < high]
    parts = [struct.pack("<I", len(runs))]
    for low, high in runs:
        rows = pyroaring.BitMap(offsets[low:high])
        rows.run_optimize()
        data = rows.serialize()
        parts += [struct.pack("<II", fragments[low], len(data)), data]
    return b"".join(parts)
