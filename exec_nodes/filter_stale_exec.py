"""FilterStaleExec: drops search candidates that have a newer version elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.bloom_filter_guard_exec import bloom_name
from exec_nodes.kernels.keys import KeyBatch
from exec_nodes.node import Node, Statistics
from exec_nodes.sources.source import KEY_POSITION, ROW_ADDRESS, SOURCE, Source


@dataclass(frozen=True)
class FilterStaleExec(Node):
    """Drops a candidate if a higher generation of its region has its key, if a later row of its
    own source has it, or if it is a tombstone (Specification 2, Appendix 3).

    The specification lets a bloom filter's false hit lose the row. Here a hit is only a reason to
    look for the key itself, so the answer is exact. For small numbers of candidates: no source's
    keys are read as a whole but for the duplicates inside a candidate's own generation.

    The child yields the key columns, `_rowaddr` and `_source`: the ordinal in `base` (if any) and
    then `regions`, each newest first. The two internal columns are dropped. Counts bloom_hits and
    bloom_skips (pairs of candidate and newer source) and stale_rows.
    """

    child: Node
    primary_key: tuple[str, ...]
    base: Source | None
    regions: tuple[tuple[Source, ...], ...]

    @property
    def schema(self) -> pa.Schema:
        """The child's columns without the internal ones."""
        return pa.schema([f for f in self.child.schema if f.name not in (ROW_ADDRESS, SOURCE)])

    @property
    def children(self) -> tuple[Node, ...]:
        """The child."""
        return (self.child,)

    @property
    def partitions(self) -> int:
        """The child's."""
        return self.child.partitions

    @property
    def statistics(self) -> Statistics:
        """At most the child's rows."""
        return Statistics(self.child.statistics.num_rows, False)

    def label(self) -> str:
        """`FilterStaleExec: bloom_filters=[bf[region_a][gen=2], bf[region_a][gen=1]]`."""
        names = ", ".join(bloom_name(source) for region in self.regions for source in region)
        return f"FilterStaleExec: bloom_filters=[{names}]"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        own, newer = self._ordinals()
        names = self.schema.names
        for batch in self.child.execute(partition):
            sources = batch.column(SOURCE).to_numpy()
            live = np.ones(batch.num_rows, np.bool_)
            for ordinal in np.unique(sources):
                rows = np.flatnonzero(sources == ordinal)
                addresses = batch.column(ROW_ADDRESS).to_numpy()[rows]
                keys = pa.Table.from_batches([batch.select(self.primary_key).take(pa.array(rows))])
                source = own[ordinal]
                if source is not self.base:
                    live[rows] &= ~np.isin(addresses, source.keys().hidden)
                live[rows] &= ~self._superseded(keys, newer[ordinal])
            self.metrics.add(stale_rows=int(len(live) - live.sum()))
            if live.any():
                yield batch.select(names).take(pa.array(np.flatnonzero(live)))

    def _superseded(self, keys: pa.Table, newer: Sequence[Source]) -> npt.NDArray[np.bool_]:
        """One flag a key: whether any of the sources has it."""
        found = np.zeros(keys.num_rows, np.bool_)
        for source in newer:
            left = np.flatnonzero(~found)
            if not len(left):
                break
            asked = KeyBatch(keys.take(pa.array(left)))
            maybe = source.might_contain(asked)
            hits = int(maybe.sum())
            self.metrics.add(bloom_hits=hits, bloom_skips=len(left) - hits)
            if hits:
                held = source.take(asked.filter(maybe), ())[KEY_POSITION].to_numpy()
                found[left[np.flatnonzero(maybe)[held]]] = True
        return found

    def _ordinals(self) -> tuple[list[Source], list[tuple[Source, ...]]]:
        """By ordinal: the source, and the sources that are newer."""
        own = [source for region in self.regions for source in region]
        newer = [region[:place] for region in self.regions for place in range(len(region))]
        return (own, newer) if self.base is None else ([self.base, *own], [tuple(own), *newer])
