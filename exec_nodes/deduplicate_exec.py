"""DeduplicateExec: keeps the newest version of every key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

import memwal_native
from exec_nodes.arrow.filter_rows import keep_rows, live_rows
from exec_nodes.base.columns import ROW_ADDRESS, SOURCE
from exec_nodes.base.lazy import lazy_property
from exec_nodes.liveness.stale_sets import PlanStale
from exec_nodes.node import Statistics
from exec_nodes.unary_node import UnaryNode


@dataclass(frozen=True)
class DeduplicateExec(UnaryNode):
    """Drops every row that is not the one with the highest (`_gen`, `_rowaddr`) of its key, and
    every row of a deleted key (Specification 2, Appendix 3).

    Streams: which rows of a source are stale does not depend on the query, so it is known before
    the first batch (`stale`), and a batch is looked at once. Yields the child's columns without
    `_rowaddr` and `_source`; of each partition at most `limit` rows, and not fewer while there
    are live ones.
    """

    stale: PlanStale
    primary_key: tuple[str, ...]
    limit: int | None = None

    @lazy_property
    def schema(self) -> pa.Schema:
        """The child's columns without the internal ones."""
        return pa.schema([f for f in self.child.schema if f.name not in (ROW_ADDRESS, SOURCE)])

    @property
    def partitions(self) -> int:
        self.stale.open()
        return self.child.partitions

    @property
    def statistics(self) -> Statistics:
        """Exact for an unfiltered scan once the stale sets are known, else the child's rows."""
        self.stale.open()
        child = self.child.statistics
        if child.num_rows is None:
            return child
        stale = self.stale.known_rows()
        rows = child.num_rows - (stale or 0)
        if self.limit is not None:
            rows = min(rows, self.limit)
        return Statistics(max(0, rows), child.exact and stale is not None)

    def label(self) -> str:
        keys = ", ".join(self.primary_key)
        return f"DeduplicateExec: partition_by=[{keys}], order_by=[_gen DESC, _rowaddr DESC]"

    def hand_over(self, partition: int) -> memwal_native.ResidentStream | Iterator[pa.RecordBatch]:
        """The live rows, if the child's are resident."""
        parts = self.child.resident(partition)
        if parts is None:
            return self.execute(partition)
        sets, names = self.stale.compute(), self.schema.names
        rows = memwal_native.ResidentStream(
            len(names), self.limit, self.child.metrics.stream(), self.metrics.stream()
        )
        for part in parts:
            stale, left = sets[part.ordinal], part.addresses
            for batch in part.rows.combine_chunks().to_batches():
                addresses, left = left[: batch.num_rows], left[batch.num_rows :]
                rows.add(batch, addresses, stale, part.conditions, part.counts)
        return rows

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        sets = self.stale.compute()
        names = self.schema.names
        remaining = self.limit
        for batch in self.child.execute(partition):
            if remaining is not None and remaining <= 0:
                return
            if not batch.num_rows:
                continue
            addresses = batch.column(ROW_ADDRESS).to_numpy()
            ordinal = batch.column(SOURCE)[0].as_py()
            live = live_rows(addresses, sets[ordinal])
            rows = batch.select(names)
            if live is not None:
                rows = keep_rows(rows, live)
                self.metrics.add(stale_rows=batch.num_rows - rows.num_rows)
            if remaining is not None:
                rows = rows.slice(0, remaining)
                remaining -= rows.num_rows
            if rows.num_rows:
                yield rows
