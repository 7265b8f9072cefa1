"""ScanExec: reads one source, whatever of it is stale."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from exec_nodes.arrow.filter_rows import keep_rows, other_rows
from exec_nodes.base.columns import ROW_ADDRESS, ROW_ADDRESS_FIELD, SOURCE_FIELD, Filter
from exec_nodes.base.lazy import lazy_property
from exec_nodes.explain.labels import conditions, source_label
from exec_nodes.keys.keys import key_column
from exec_nodes.liveness.base_join import BaseMatch
from exec_nodes.liveness.stale_sets import PlanStale
from exec_nodes.node import Node, ResidentPart, Statistics
from exec_nodes.sources.source import Source


@dataclass(frozen=True)
class ScanExec(Node):
    """Scans one source with projection, filters and limit pushed down (Specification 2, "Scan
    Queries").

    Yields `output`'s columns, `_rowaddr` (uint64, where the row is in its source) and `_source`
    (int32, the source's ordinal in the plan). Stale rows are among them, for DeduplicateExec to
    drop, which is why a limit is raised here by their number. Rows that meet the filters have keys
    within `span`, from its first number to its second: without, a range of 100 keys of 1,000,000
    takes up to a fifth longer. The first scan of the whole base table finds out on its way which
    rows are stale (`stale.learner`), and leaves them out itself.
    """

    source: Source
    ordinal: int
    output: pa.Schema
    filters: tuple[Filter, ...]
    limit: int | None
    stale: PlanStale
    span: tuple[int, int] | None = None

    @lazy_property
    def schema(self) -> pa.Schema:
        """The output columns, `_rowaddr`, `_source`."""
        return self.output.append(ROW_ADDRESS_FIELD).append(SOURCE_FIELD)

    @property
    def partitions(self) -> int:
        """The source's parts."""
        return self.source.parts

    @lazy_property
    def statistics(self) -> Statistics:
        """The source's rows; exact without filter and limit."""
        exact = not self.filters and self.limit is None
        return Statistics(self.source.rows, exact)

    def label(self) -> str:
        return f"ScanExec: {source_label(self.source)}, filter=[{conditions(self.filters)}]"

    def resident(self, partition: int) -> list[ResidentPart] | None:
        """See `Node.resident`; None for the first scan of the base table."""
        native = [c.native for c in self.filters if c.native is not None]
        learns = self.source is self.stale.base and self.stale.learner is not None
        # Tables without columns, as those of the filter `true`, have lost their number of rows.
        reads = self.output.names or any(condition.columns for condition in self.filters)
        if learns or not reads or len(native) < len(self.filters):
            return None
        tables = self.source.resident(self.output.names, self.filters, partition, self.span)
        if tables is None:
            return None
        counts = self.metrics.stream()
        return [ResidentPart(self.ordinal, *rows, native, counts) for rows in tables]

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        learner = self.stale.learner if self.source is self.stale.base else None
        schema, tag = self.schema, pa.array([], pa.int32())
        batches = self._rows(partition) if learner is None else self._learning(partition, learner)
        for batch in batches:
            if len(tag) < batch.num_rows:
                tag = pa.array(np.full(batch.num_rows, self.ordinal, np.int32))
            arrays = [*batch.columns, tag.slice(0, batch.num_rows)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _rows(self, partition: int) -> Iterator[pa.RecordBatch]:
        limit = self.limit
        if limit is not None:
            limit += len(self.stale.compute()[self.ordinal])
        return self.source.scan(self.output.names, self.filters, limit, partition)

    def _learning(self, partition: int, learner: BaseMatch) -> Iterator[pa.RecordBatch]:
        output = [*self.output.names, ROW_ADDRESS]
        columns = list(dict.fromkeys([*self.output.names, *learner.key_names]))
        piece = learner.piece()
        for batch in self.source.scan(columns, (), None, partition):
            keys = key_column([batch.column(name) for name in learner.key_names])
            stale = piece.add(keys, batch.column(ROW_ADDRESS).to_numpy())
            live = other_rows(batch.num_rows, stale)
            rows = batch.select(output)
            if live is not None:
                rows = keep_rows(rows, live)
                self.metrics.add(stale_rows=len(stale))
            if rows.num_rows:
                yield rows
        self.stale.learned(learner, partition, piece)
