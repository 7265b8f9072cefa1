"""Plain Lance tables in a session: read, and not written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from exec_nodes.lance.errors import lance_errors
from exec_nodes.lance.reading import batches_of
from exec_nodes.node import Node, Statistics
from memwal_sql.errors import UnsupportedError
from memwal_sql.session.provider import answers
from memwal_sql.state.schema import logical_schema
from planner.predicates.condition import condition_of

if TYPE_CHECKING:
    from memwal_native import Predicate


@dataclass(frozen=True)
class LanceScanExec(Node):
    """Scans a Lance table at one version, with projection, filter and limit pushed down."""

    dataset: Any = field(repr=False)
    output: pa.Schema
    filter: str | None
    limit: int | None

    @property
    def schema(self) -> pa.Schema:
        """The output columns."""
        return self.output

    @property
    def statistics(self) -> Statistics:
        """Unknown."""
        return Statistics()

    def label(self) -> str:
        """`LanceScanExec: version=3, filter=[val > 5]`."""
        return f"LanceScanExec: version={self.dataset.version}, filter=[{self.filter or ''}]"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        with lance_errors("a Lance table", self.dataset.uri):
            if not self.output.names:
                count = self.dataset.count_rows(self.filter)
                count = count if self.limit is None else min(count, self.limit)
                yield pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
                return
            scanner = self.dataset.scanner(
                columns=self.output.names, filter=self.filter, limit=self.limit
            )
            for batch in batches_of(scanner):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self.output)


class LanceProvider:
    """The rows of a Lance table, as `memwal_native.MountedTable` mounts them."""

    def __init__(self, dataset: Any) -> None:
        self.schema = logical_schema(dataset.schema)
        self._dataset = dataset

    def supports_filters_pushdown(self, filters: Sequence[Predicate]) -> list[str]:
        """`"exact"` for the filters that Lance evaluates as DataFusion would."""
        return answers(filters, self.schema)

    def scan(
        self, projection: Sequence[int] | None, filters: Sequence[Predicate], limit: int | None
    ) -> Node:
        """A leaf over the version that was opened."""
        texts = [condition_of(filter_, self.schema).lance for filter_ in filters]
        exact = [f"({text})" for text in texts if text is not None]
        names = self.schema.names
        chosen = names if projection is None else [names[place] for place in projection]
        output = pa.schema([self.schema.field(name) for name in chosen])
        return LanceScanExec(self._dataset, output, " AND ".join(exact) or None, limit)

    def check_insert(self, _: Sequence[str]) -> None:
        """Raise UnsupportedError."""
        raise UnsupportedError(
            f"{self._dataset.uri} is a plain Lance table, which is read here and not written: "
            "memwal_sql.enable(uri, primary_key=...) makes it one of this package"
        )
