"""Tables of a session that describe a table of this package."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from exec_nodes.node import Node, Statistics
from memwal_sql.errors import UnsupportedError

if TYPE_CHECKING:
    from memwal_native import Predicate


@dataclass(frozen=True)
class BatchesExec(Node):
    """Yields the rows of a table in memory."""

    name: str
    table: pa.Table = field(repr=False)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self.table.schema

    @property
    def statistics(self) -> Statistics:
        """Exact."""
        return Statistics(self.table.num_rows, True, self.table.nbytes)

    def label(self) -> str:
        """`BatchesExec: events$regions`."""
        return f"BatchesExec: {self.name}"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        yield from self.table.to_batches()


class MetadataProvider:
    """A read-only table whose rows `load` returns; DataFusion filters them.

    `load` is called once by every scan and returns a table that has the columns of `schema`.
    """

    def __init__(self, name: str, schema: pa.Schema, load: Callable[[], pa.Table]) -> None:
        self.schema = schema
        self._name = name
        self._load = load

    def supports_filters_pushdown(self, filters: Sequence[Predicate]) -> list[str]:
        """`"unsupported"` for all, as DataFusion applies them."""
        return ["unsupported"] * len(filters)

    def scan(
        self, projection: Sequence[int] | None, _: Sequence[Predicate], limit: int | None
    ) -> Node:
        """A leaf over the current rows."""
        rows = self._load().select(self.schema.names).cast(self.schema)
        if limit is not None:
            rows = rows.slice(0, limit)
        if projection is not None:
            rows = rows.select(projection)
        return BatchesExec(self._name, rows)

    def check_insert(self, _: Sequence[str]) -> None:
        """Raise UnsupportedError."""
        raise UnsupportedError(f"{self._name!r} describes a table and can't be written")
