"""The DataFusion provider of a table: filters that sources take over, plans, and INSERT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from exec_nodes.node import Node
from exec_nodes.source import Filter
from memwal_sql.errors import InvalidCallError, ReopenError
from memwal_sql.read.collector import check_consistency
from planner.model import Query, Snapshot
from planner.plan import plan
from planner.lance_filter import is_pushable, lance_filter

if TYPE_CHECKING:
    from memwal_native import ArrowStream, Predicate


class InsertResult(Protocol):
    """What an upsert says of itself."""

    @property
    def rows(self) -> int:
        """Rows written."""


class InsertWriter(Protocol):
    """Takes the rows of an INSERT."""

    def upsert(self, data: pa.RecordBatchReader) -> InsertResult:
        """Write all rows of `data`."""


class SqlTable(Protocol):
    """What SQL needs of a table."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    def snapshot(self, consistency: str = "strong", filters: Sequence[str] = ()) -> Snapshot:
        """One consistent state, without the regions that `filters` rule out."""

    def writer_for_insert(self) -> InsertWriter:
        """The writer that INSERT uses."""


class TableProvider:
    """The rows of a table at one consistency level, as `memwal_native.MountedTable` mounts them.

    Every query is planned over a snapshot of its own, taken when DataFusion plans the scan.
    """

    def __init__(self, name: str, table: SqlTable, consistency: str = "strong") -> None:
        check_consistency(consistency)
        self.schema = table.schema
        self._name = name
        self._table = table
        self._consistency = consistency

    def supports_filters_pushdown(self, filters: Sequence[str | None]) -> list[str]:
        """`"exact"` for the filters that every source evaluates as DataFusion would."""
        pushable = (sql is not None and is_pushable(sql, self.schema) for sql in filters)
        return ["exact" if yes else "unsupported" for yes in pushable]

    def scan(
        self, projection: Sequence[int] | None, predicates: Sequence[Predicate], limit: int | None
    ) -> Node:
        """The plan of one query; `predicates` are filters that were called exact."""
        filters = tuple(_filter(predicate, self.schema) for predicate in predicates)
        snapshot = self._table.snapshot(self._consistency, [f.sql for f in filters])
        if not snapshot.info.schema.equals(self.schema):
            raise ReopenError(
                f"the columns of {self._name!r} have changed since it was registered: "
                f"register it again to see {snapshot.info.schema.names}"
            )
        names = self.schema.names
        columns = names if projection is None else [names[index] for index in projection]
        return plan(Query(tuple(columns), filters, limit), snapshot)

    def insert(self, rows: ArrowStream) -> int:
        """Upsert the rows of one INSERT statement, all of which are there."""
        reader = pa.RecordBatchReader.from_stream(rows)
        return self._table.writer_for_insert().upsert(reader).rows


def _filter(predicate: Predicate, schema: pa.Schema) -> Filter:
    lance = None if predicate.sql is None else lance_filter(predicate.sql, schema)
    if predicate.sql is None or lance is None:
        raise InvalidCallError(f"the filter {predicate.sql} was pushed down but not offered to be")
    return Filter(predicate.sql, predicate.evaluate, tuple(predicate.columns), lance)
