"""Small nodes and providers that misbehave only when a test asks them to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from exec_nodes.node import Node, Statistics
from memwal_native import Predicate


@dataclass(frozen=True)
class Rows(Node):
    """Yields given batches, one list a partition; a callable in a list raises or sleeps."""

    sch: pa.Schema
    parts: tuple[tuple[pa.RecordBatch | Callable[[], None], ...], ...]
    name: str = "RowsExec"
    inputs: tuple[Node, ...] = ()
    known: Statistics = field(default_factory=Statistics)

    @property
    def schema(self) -> pa.Schema:
        return self.sch

    @property
    def children(self) -> tuple[Node, ...]:
        return self.inputs

    @property
    def partitions(self) -> int:
        return len(self.parts)

    @property
    def statistics(self) -> Statistics:
        return self.known

    def label(self) -> str:
        return self.name

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        for item in self.parts[partition]:
            if isinstance(item, pa.RecordBatch):
                yield item
            else:
                item()


class FakeProvider:
    """A table in memory that evaluates the filters it calls exact; remembers its calls."""

    def __init__(
        self,
        table: pa.Table,
        *,
        partitions: int = 1,
        rows_a_batch: int = 1 << 20,
        answer: str = "exact",
    ) -> None:
        self.schema = table.schema
        self.table = table
        self.partitions = partitions
        self.rows_a_batch = rows_a_batch
        self.answer = answer
        self.offered: list[str | None] = []
        self.scans: list[tuple[list[int] | None, list[str | None], int | None]] = []
        self.nulls: list[list[str]] = []
        self.inserted: list[pa.Table] = []

    def supports_filters_pushdown(self, filters: Sequence[Predicate]) -> list[str]:
        self.offered += [predicate.sql for predicate in filters]
        return [self.answer] * len(filters)

    def scan(
        self, projection: list[int] | None, predicates: list[Predicate], limit: int | None
    ) -> Node:
        self.scans.append((projection, [p.sql for p in predicates], limit))
        batches = self.table.to_batches(max_chunksize=self.rows_a_batch)
        for predicate in predicates if self.answer == "exact" else ():
            batches = [batch.filter(predicate.evaluate(batch)) for batch in batches]
        if projection is not None:
            batches = [batch.select(projection) for batch in batches]
            schema = pa.schema([self.schema.field(index) for index in projection])
        else:
            schema = self.schema
        parts = tuple(tuple(batches[n :: self.partitions]) for n in range(self.partitions))
        return Rows(schema, parts)

    def check_insert(self, nulls: list[str]) -> None:
        self.nulls.append(nulls)

    def insert(self, rows: Any) -> int:
        self.inserted.append(pa.RecordBatchReader.from_stream(rows).read_all())
        return self.inserted[-1].num_rows


class NodeProvider:
    """A provider whose every scan is the node given; takes no filters."""

    def __init__(self, node: Node) -> None:
        self.schema = node.schema
        self.node = node

    def supports_filters_pushdown(self, filters: Sequence[Predicate]) -> list[str]:
        return ["unsupported"] * len(filters)

    def scan(
        self, projection: list[int] | None, predicates: list[Predicate], limit: int | None
    ) -> Node:
        if projection is None or len(projection) == len(self.schema):
            return self.node
        raise AssertionError("select every column of a NodeProvider")
