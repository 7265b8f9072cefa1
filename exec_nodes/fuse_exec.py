"""FuseExec: one ranking out of several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from exec_nodes.base.columns import ROW_ADDRESS, ROW_ADDRESS_FIELD, SOURCE, SOURCE_FIELD
from exec_nodes.node import Node, Statistics

RELEVANCE = "_relevance_score"
RELEVANCE_FIELD = pa.field(RELEVANCE, pa.float32(), nullable=False)


@dataclass(frozen=True)
class FuseExec(Node):
    """Reciprocal rank fusion: of each row the sum of `weight / (constant + rank)` over the inputs
    that have it, ranks counted from 1 (Cormack, Clarke and Buettcher, SIGIR 2009).

    The inputs yield narrow rows (see `base.columns`), each one partition, the best first. Yields
    `_rowaddr`, `_source`, the ranking columns of all inputs, null where an input has not the row,
    and `_relevance_score` (float32), in no particular order.
    """

    inputs: tuple[Node, ...]
    weights: tuple[float, ...]
    constant: float

    @property
    def schema(self) -> pa.Schema:
        """The location of a row, its rank columns, its fused score."""
        ranked = [field.with_nullable(True) for child in self.inputs for field in _ranking(child)]
        return pa.schema([ROW_ADDRESS_FIELD, SOURCE_FIELD, *ranked, RELEVANCE_FIELD])

    @property
    def children(self) -> tuple[Node, ...]:
        return self.inputs

    @property
    def statistics(self) -> Statistics:
        """At most the inputs' rows together."""
        counts = [child.statistics.num_rows for child in self.inputs]
        rows = [count for count in counts if count is not None]
        return Statistics(sum(rows) if len(rows) == len(counts) else None, False)

    def label(self) -> str:
        weights = ", ".join(f"{weight:g}" for weight in self.weights)
        return f"FuseExec: reciprocal_rank, k={self.constant:g}, weights=[{weights}]"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        tables = [
            pa.Table.from_batches(child.execute(partition), child.schema) for child in self.inputs
        ]
        addresses = np.concatenate([table[ROW_ADDRESS].to_numpy() for table in tables])
        ordinals = np.concatenate([table[SOURCE].to_numpy() for table in tables])
        places = np.rec.fromarrays([ordinals, addresses])
        _, first, row_of = np.unique(places, return_index=True, return_inverse=True)
        scores = np.zeros(len(first))
        columns: list[pa.Array] = [pa.array(addresses[first]), pa.array(ordinals[first])]
        start = 0
        for child, table, weight in zip(self.inputs, tables, self.weights, strict=True):
            rows = row_of[start : start + len(table)]
            start += len(table)
            scores[rows] += weight / (self.constant + 1 + np.arange(len(table)))
            ranks = np.zeros(len(first), np.int64)
            ranks[rows] = np.arange(1, len(table) + 1)
            position = pa.array(ranks - 1, mask=ranks == 0)
            for field in _ranking(child):
                columns.append(table[field.name].combine_chunks().take(position))
        columns.append(pa.array(scores.astype(np.float32)))
        if len(first):
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _ranking(child: Node) -> list[pa.Field]:
    return [field for field in child.schema if field.name not in (ROW_ADDRESS, SOURCE)]
