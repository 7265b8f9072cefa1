"""FilterStaleExec: drops search candidates that are not rows of the table, and asks for more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.arrow.arrays import Mask
from exec_nodes.arrow.filter_rows import among
from exec_nodes.base.columns import DISTANCE, KEY_POSITION, QUERY, ROW_ADDRESS, SOURCE, RowAddresses
from exec_nodes.explain.labels import guard_labels
from exec_nodes.keys.keys import KeyBatch
from exec_nodes.liveness.masks import Masks
from exec_nodes.node import Statistics
from exec_nodes.sources.source import Source
from exec_nodes.unary_node import UnaryNode


@dataclass(frozen=True)
class FilterStaleExec(UnaryNode):
    """Drops a candidate if a higher generation of its region has its key, if a later row of its
    own source has it, or if it is a tombstone (Specification 2, Appendix 3).

    The specification lets a bloom filter's false hit lose the row. Here a hit is only a reason to
    look for the key itself, so the answer is exact, whatever the sources masked beforehand (see
    `masks`): that saves the asking, and candidates.

    The child yields narrow rows (see `base.columns`), one partition per source, best first, and
    more on demand. No more is requested of a partition than `limit` live rows for each of the
    `queries`; None takes all. Counts bloom_hits and bloom_skips (pairs of candidate and newer
    source), stale_rows, and refills, the batches requested because too few rows were live.
    """

    masks: Masks
    primary_key: tuple[str, ...]
    limit: int | None = None
    queries: int = 1

    @property
    def partitions(self) -> int:
        """One, of all of the child's."""
        return 1

    @property
    def statistics(self) -> Statistics:
        self.masks.stale.open()
        return Statistics(self.child.statistics.num_rows, False)

    def label(self) -> str:
        """`FilterStaleExec: asked=[keys[region_a][gen=2], bf[region_a][gen=1]]`: the newer sources
        that may be asked about candidates; the others have been matched before."""
        return f"FilterStaleExec: asked=[{guard_labels(self.masks.asked)}]"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        for part in range(self.child.partitions):
            counts, batches = np.zeros(self.queries, np.int64), 0
            with closing(self.child.execute(part)) as stream:  # type: ignore[type-var]
                for batch in stream:
                    live = self._live(batch)
                    rows = batch if live.all() else batch.filter(pa.array(live))
                    stale = batch.num_rows - rows.num_rows
                    self.metrics.add(refills=min(1, batches), stale_rows=stale)
                    batches += 1
                    if rows.num_rows:
                        yield rows
                    if self.limit is not None:
                        counts += _counts(rows, self.queries)
                        if counts.min() >= self.limit:
                            break

    def _live(self, batch: pa.RecordBatch) -> Mask:
        ordinals = batch.column(SOURCE).to_numpy()
        addresses = batch.column(ROW_ADDRESS).to_numpy()
        own = set(ordinals.tolist())
        if len(own) == 1:
            return self._live_of(own.pop(), addresses)
        live = np.ones(batch.num_rows, np.bool_)
        for ordinal in sorted(own):
            rows = np.flatnonzero(ordinals == ordinal)
            live[rows] = self._live_of(ordinal, addresses[rows])
        return live

    def _live_of(self, ordinal: int, addresses: RowAddresses) -> Mask:
        """One flag a row of a source."""
        live = ~among(addresses, self.masks.of(ordinal))
        sources = self.masks.unmasked(ordinal)
        if sources and len(rows := np.flatnonzero(live)):
            source = self.masks.stale.sources[ordinal]
            # Each row is looked up once: several queries may have found it.
            distinct, places = np.unique(addresses[rows], return_inverse=True)
            keys = source.rows_at(distinct, self.primary_key)
            live[rows] = ~self._superseded(keys, sources)[places]
        return live

    def _superseded(self, keys: pa.Table, newer: Sequence[Source]) -> Mask:
        """One flag a key: whether any of the sources has it."""
        present = np.zeros(keys.num_rows, np.bool_)
        for source in newer:
            missing = np.flatnonzero(~present)
            if not len(missing):
                break
            asked = KeyBatch(keys.take(pa.array(missing)))
            maybe = source.might_contain(asked)
            hits = int(maybe.sum())
            self.metrics.add(bloom_hits=hits, bloom_skips=len(missing) - hits)
            if hits:
                places = source.take(asked.filter(maybe), ())[KEY_POSITION].to_numpy()
                present[missing[np.flatnonzero(maybe)[places]]] = True
        return present


def _counts(rows: pa.RecordBatch, queries: int) -> npt.NDArray[np.int64]:
    """Rows by query, without rows that are not nearest ones."""
    names, counted = rows.schema.names, np.ones(rows.num_rows, np.bool_)
    if DISTANCE in names:
        counted = ~np.isnan(rows.column(DISTANCE).to_numpy())
    if QUERY not in names:
        return np.full(1, np.count_nonzero(counted), np.int64)
    return np.bincount(rows.column(QUERY).to_numpy()[counted], minlength=queries)
