"""TakeExec: fetches the output columns of the few rows that a search found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from exec_nodes.arrow.large_columns import taken
from exec_nodes.base.columns import QUERY, QUERY_INDEX_FIELD, ROW_ADDRESS, SOURCE
from exec_nodes.base.lazy import lazy_property
from exec_nodes.sources.source import Source
from exec_nodes.unary_node import UnaryNode


@dataclass(frozen=True)
class TakeExec(UnaryNode):
    """Replaces `_rowaddr` and `_source` of narrow rows (see `base.columns`) by the columns of
    `output`, and keeps their order. `sources` are the plan's, by ordinal.

    Yields `output`'s columns, then the child's other ones; `_query` is called `query_index`.
    """

    sources: tuple[Source, ...]
    output: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """The output columns, then the ranking columns."""
        kept = [QUERY_INDEX_FIELD if f.name == QUERY else f for f in self._ranking]
        return pa.schema([*self.output, *kept])

    def label(self) -> str:
        return f"TakeExec: columns=[{', '.join(self.output.names)}]"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        schema, ranking = self.schema, self._ranking
        for batch in self.child.execute(partition):
            kept = [batch.column(f.name) for f in ranking]
            if not len(self.output):
                yield pa.RecordBatch.from_arrays(kept, schema=schema)
            elif batch.num_rows:
                rows = pa.Table.from_arrays([*self._taken(batch).columns, *kept], schema=schema)
                yield from rows.to_batches()

    def _taken(self, batch: pa.RecordBatch) -> pa.Table:
        ordinals = batch.column(SOURCE).to_numpy()
        addresses = batch.column(ROW_ADDRESS).to_numpy()
        pieces, places = [], []
        for ordinal in sorted(set(ordinals.tolist())):
            rows = np.flatnonzero(ordinals == ordinal)
            fetched = self.sources[ordinal].rows_at(addresses[rows], self.output.names)
            pieces.append(fetched if fetched.schema == self.output else fetched.cast(self.output))
            places.append(rows)
        whole = pa.concat_tables(pieces)
        if len(pieces) > 1:
            whole = taken(whole, np.argsort(np.concatenate(places)))
        return whole

    @lazy_property
    def _ranking(self) -> list[pa.Field]:
        return [f for f in self.child.schema if f.name not in (ROW_ADDRESS, SOURCE)]
