"""TakeLastExec: the last row of one key in one source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from exec_nodes.arrow.ffi_alignment import aligned
from exec_nodes.base.columns import TOMBSTONE_FIELD
from exec_nodes.explain.labels import source_label
from exec_nodes.keys.keys import KeyBatch
from exec_nodes.node import Node, Statistics
from exec_nodes.sources.source import Source


@dataclass(frozen=True)
class TakeLastExec(Node):
    """Finds the row of `key` with the highest row address by an index, without a scan
    (Specification 2, Appendix 3).

    Yields at most one row, or those that the base table has: `output`'s columns and `_tombstone`,
    which tells a deleted key from one that is not there.
    """

    source: Source
    key: KeyBatch
    condition: str
    output: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """The output columns and `_tombstone`."""
        return self.output.append(TOMBSTONE_FIELD)

    @property
    def statistics(self) -> Statistics:
        return Statistics(1, False)

    def label(self) -> str:
        return f"TakeLastExec: {source_label(self.source)}, filter=[{self.condition}]"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        last_row = self.source.last(self.key, self.output.names)
        if last_row is not None:
            rows, deleted = last_row
            columns = [column.combine_chunks() for column in rows.cast(self.output).columns]
            columns.append(pa.array([deleted] * rows.num_rows))
            yield aligned(pa.RecordBatch.from_arrays(columns, schema=self.schema))
