"""SortExec: orders the candidates of all sources, the best first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.large_columns import concatenated
from exec_nodes.base.columns import QUERY, ROW_ADDRESS, SOURCE
from exec_nodes.sources.source import Source
from exec_nodes.unary_node import UnaryNode

_Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SortExec(UnaryNode):
    """Sorts narrow rows (see `base.columns`) by `column`, separately for each query.

    Equal values are ordered by the primary key, so that a search gives the same rows every time,
    wherever they lie. Only the keys of those are read that may be among the first `limit` of their
    query. Yields one batch.

    `sources` are the plan's, by ordinal; `key` has the fields of the primary key.
    """

    column: str
    sources: tuple[Source, ...]
    key: pa.Schema
    limit: int
    descending: bool = False

    @property
    def partitions(self) -> int:
        """One, of all of the child's."""
        return 1

    def label(self) -> str:
        queries = f"{QUERY} ASC, " if QUERY in self.schema.names else ""
        return f"SortExec: order_by=[{queries}{self.column} {'DESC' if self.descending else 'ASC'}]"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        parts = range(self.child.partitions)
        batches = [batch for part in parts for batch in self.child.execute(part)]
        if not batches:
            return
        rows = concatenated(batches)
        values = rows.column(self.column).to_numpy()
        ranked = -values if self.descending else values
        query = np.zeros(len(rows), np.int32)
        if QUERY in rows.schema.names:
            query = rows.column(QUERY).to_numpy()
        order = np.lexsort((ranked, query))
        self._sort_ties(rows, order, ranked[order], query[order])
        yield rows.take(pa.array(order))

    def _sort_ties(
        self,
        rows: pa.RecordBatch,
        order: _Places,
        ranked: npt.NDArray[np.float32],
        query: npt.NDArray[np.int32],
    ) -> None:
        """Put places in `order` with equal values in the order of their keys."""
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (ranked[1:] != ranked[:-1]) | (query[1:] != query[:-1])
        group = np.cumsum(begins) - 1
        first = np.flatnonzero(begins)
        sizes = np.diff(first, append=len(order))
        ranks = first - query.searchsorted(query[first])
        tied = np.flatnonzero(((sizes > 1) & (ranks < self.limit))[group])
        if len(tied):
            keys = self._keys(rows, order[tied])
            keys = keys.rename_columns([f"{place}" for place in range(keys.num_columns)])
            by = [("group", "ascending"), *((name, "ascending") for name in keys.column_names)]
            sorted_places = pc.sort_indices(
                keys.append_column("group", pa.array(group[tied])), sort_keys=by
            )
            order[tied] = order[tied][sorted_places.to_numpy()]

    def _keys(self, rows: pa.RecordBatch, places: _Places) -> pa.Table:
        ordinals = rows.column(SOURCE).to_numpy()[places]
        addresses = rows.column(ROW_ADDRESS).to_numpy()[places]
        pieces, taken = [], []
        for ordinal in np.unique(ordinals).tolist():
            own = np.flatnonzero(ordinals == ordinal)
            fetched = self.sources[ordinal].rows_at(addresses[own], self.key.names)
            pieces.append(fetched if fetched.schema == self.key else fetched.cast(self.key))
            taken.append(own)
        return pa.concat_tables(pieces).take(pa.array(np.argsort(np.concatenate(taken))))
