"""Searching one source: in memory, through its index, or by reading it all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from exec_nodes.arrow.filter_rows import among, live_rows
from exec_nodes.base.columns import ROW_ADDRESS, Filter, RowAddresses
from exec_nodes.base.counting import count
from exec_nodes.base.index_info import IndexInfo
from exec_nodes.base.lazy import lazy_property
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.sources.source import Source
from exec_nodes.vectors.column import Flags, VectorColumn
from exec_nodes.vectors.index_search import IndexSearch, few_rows
from exec_nodes.vectors.late_interaction import late_candidates
from exec_nodes.vectors.nearest import Candidates, NearestQuery, measured, nearest, nearest_of
from exec_nodes.vectors.ordered import contenders, ordered
from exec_nodes.vectors.resident import VectorRun, live_flags, resident_vectors

# The factor of more candidates if too few met a filter that Lance can't take.
_GROWTH = 8

# Vectors, and flags of those that count; None: all count.
_Part = tuple[VectorColumn, Flags | None]


@dataclass(frozen=True)
class SourceSearch:
    """Finds the nearest rows of one source. `index` may be used, if the source has it."""

    source: Source
    query: NearestQuery
    filters: tuple[Filter, ...]
    index: IndexInfo | None

    def nearest(self, most: int, mask: RowAddresses) -> Candidates:
        """The `most` nearest rows of each query, and all as near as the last of them, among the
        rows that match all filters and are not in `mask` (sorted addresses); all with a distance
        within the bounds if there are fewer. The result is exact, or has the recall of an index.
        For an `Order`, rows that may be as near and rows that may be anywhere in the order come
        too; neither through an index.
        """
        query, source = self.query, self.source
        if not source.rows:
            return Candidates.of([])
        if query.late:
            count(searched_by_reading=1)
            return self._late(most, mask)
        runs = resident_vectors(source, query.column, query.metric, eager=self._unindexed)
        if runs is not None:
            count(searched_in_memory=1)
            return self._best(self._in_memory(runs, mask), most)
        if isinstance(source, LanceSource) and self._usable_index is not None:
            count(searched_by_index=1)
            return self._by_index(source, self._usable_index, most, mask)
        count(searched_by_reading=1)
        return self._best(self._read_all(mask), most)

    def _best(self, parts: Iterable[_Part], most: int) -> Candidates:
        query = self.query
        if query.order is not None:
            pieces = (contenders(vectors, query, most, counts) for vectors, counts in parts)
            return ordered(pieces, query, most)
        best: Candidates | None = None
        for vectors, counts in parts:
            here = nearest(
                vectors, query.vectors, most, query.metric, counts=counts, bounds=query.bounds
            )
            best = here if best is None else nearest_of([best, here], most)
        return Candidates.of([]) if best is None else best

    def _in_memory(self, runs: Sequence[VectorRun], mask: RowAddresses) -> Iterator[_Part]:
        source = self.source
        rows = source.matching(self.filters) if self.filters else None
        for live_run in runs:
            vectors, counts = live_run.run.value, live_flags(source, live_run, mask)
            if rows is not None:
                met = among(vectors.addresses, rows)
                counts = met if counts is None else met & counts
            yield vectors, counts

    def _by_index(
        self, source: LanceSource, index: IndexInfo, most: int, mask: RowAddresses
    ) -> Candidates:
        inside, outside = self._split(source)
        condition = " AND ".join(f"({f.lance})" for f in inside) or None
        few = few_rows(source, condition, mask)
        if not isinstance(few, float):
            rows = self._met(few, outside)
            return nearest_of([self._measured([rows] * len(self.query.vectors), most)], most)
        search = IndexSearch(source, index, self.query, condition, mask, few)
        size = most + 1  # one that is farther than the last says that no other is as near
        while size * _GROWTH <= source.rows:
            ranked = self._ranked(search, size)
            if ranked is None:
                break
            met = ranked.where(np.isin(ranked.addresses, self._met(ranked.addresses, outside)))
            queries = len(self.query.vectors)
            farther = met.where(met.ranks(most) >= most)
            enough = (farther.counts(queries) > 0) | (ranked.counts(queries) < size)
            if enough.all():
                return nearest_of([met], most)
            size *= _GROWTH
        return self._best(self._read_all(mask), most)

    def _ranked(self, search: IndexSearch, most: int) -> Candidates | None:
        """The `most` nearest of each query by the index, measured exactly, within the bounds; None
        if the index gives too few."""
        places = range(len(self.query.vectors))
        for queries, addresses in search.attempts(most):
            if np.bincount(queries, minlength=len(places)).min() >= most:
                return self._measured([addresses[queries == place] for place in places], most)
        return None

    def _measured(self, rows: Sequence[RowAddresses], most: int) -> Candidates:
        """The `most` nearest, by exact distance, of the rows given for each query."""
        query = self.query
        distinct = np.unique(np.concatenate(rows))
        vectors = self.source.rows_at(distinct, [query.column])[query.column]
        column = VectorColumn.decoded(vectors, distinct)
        return Candidates.of(
            [
                measured(
                    column,
                    distinct.searchsorted(np.sort(own)),
                    vector,
                    most,
                    query.metric,
                    query.bounds,
                )
                for own, vector in zip(rows, query.vectors, strict=True)
            ]
        )

    def _late(self, most: int, mask: RowAddresses) -> Candidates:
        """As `nearest`, of rows with several vectors."""
        best = Candidates.of([])
        for lists, addresses in self._values():
            live = live_rows(addresses, mask)
            if live is not None:
                lists, addresses = lists.filter(pa.array(live)), addresses[live]
            best = nearest_of([best, late_candidates(lists, addresses, self.query)], most)
        return best

    def _read_all(self, mask: RowAddresses) -> Iterator[_Part]:
        """Every vector that matches, some at a time."""
        for values, addresses in self._values():
            vectors = VectorColumn.decoded(pa.chunked_array([values]), addresses)
            yield vectors, live_rows(addresses, mask)

    def _values(self) -> Iterator[tuple[pa.Array, RowAddresses]]:
        """The column's values that match, some at a time, and their addresses."""
        name = self.query.column
        for part in range(self.source.parts):
            for batch in self.source.scan([name], self.filters, None, part):
                yield batch.column(name), batch.column(ROW_ADDRESS).to_numpy()

    def _met(self, rows: RowAddresses, filters: Sequence[Filter]) -> RowAddresses:
        """The rows that meet filters which Lance can't take; sorted if there are any."""
        for condition in filters:
            rows = np.unique(rows)
            if not len(rows):
                break
            names = list(condition.columns)
            rows_met = self.source.rows_at(rows, names or [self.query.column])
            met = pa.chunked_array([condition.met_in(batch) for batch in rows_met.to_batches()])
            rows = pa.array(rows).filter(met).to_numpy()
        return rows

    def _split(self, source: LanceSource) -> tuple[list[Filter], list[Filter]]:
        """The filters that Lance takes, over columns that the files have, and the others."""
        stored = set(source.dataset.schema.names)
        inside = [f for f in self.filters if f.lance is not None and stored.issuperset(f.columns)]
        return inside, [f for f in self.filters if f not in inside]

    def _unindexed(self) -> bool:
        return self._usable_index is None

    @lazy_property
    def _usable_index(self) -> IndexInfo | None:
        index, source = self.index, self.source
        if index is None or self.query.bounds.lower is not None:
            return None
        return index if isinstance(source, LanceSource) and source.has_index(index.name) else None
