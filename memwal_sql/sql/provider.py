"""The DataFusion provider of a table: filters that sources take over, plans, and INSERT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from exec_nodes.node import Node
from exec_nodes.sources.source import Filter
from memwal_sql.errors import ReopenError, RetryError
from memwal_sql.read.collector import check_consistency
from memwal_sql.read.planning import Read, scan_of
from planner.model import Query, Snapshot
from planner.predicates.lance_filter import lance_filter

if TYPE_CHECKING:
    from memwal_native import ArrowStream, Predicate


class ReadTable(Protocol):
    """What a query needs of a table."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    def planned(self, read: Read, consistency: str = "strong", filters: Sequence[str] = ()) -> Node:
        """The plan of `read` over one consistent state, without the regions that `filters` rule
        out."""


class SqlTable(ReadTable, Protocol):
    """What SQL needs of a table."""

    def insert(self, rows: pa.Table, columns: pa.Schema) -> int:
        """Upsert `rows`, durably, and return how many there are.

        Raises ReopenError when the table has other columns than `columns`.
        """


class TableProvider:
    """The rows of a table at one consistency level, as `memwal_native.MountedTable` mounts them.

    Every query is planned over a snapshot of its own, taken when DataFusion plans the scan.
    """

    def __init__(self, name: str | None, table: SqlTable, consistency: str = "strong") -> None:
        """`name` is that under which the table is registered, if it is."""
        check_consistency(consistency)
        self.schema = table.schema
        self._name = name
        self._table = table
        self._consistency = consistency

    def supports_filters_pushdown(self, filters: Sequence[Predicate]) -> list[str]:
        """`"exact"` for the filters that every source evaluates as DataFusion would.

        The others may still rule regions out; DataFusion applies them to the rows itself.
        """
        return answers(filters, self.schema)

    def scan(
        self, projection: Sequence[int] | None, predicates: Sequence[Predicate], limit: int | None
    ) -> Node:
        """The plan of one query; `predicates` are the filters that were called (in)exact.

        `limit` is given only where every filter is exact.
        """
        texts = [predicate.sql for predicate in predicates if predicate.sql is not None]
        names = self.schema.names
        columns = names if projection is None else [names[index] for index in projection]
        scan = scan_of(Query(tuple(columns), tuple(self._exact(predicates)), limit))
        # It is remembered by the table, to which nothing of it may lead back.
        name, schema = self._name, self.schema
        read = Read(scan.what, lambda snapshot: scan.plan(of_columns(snapshot, schema, name)))
        return self._table.planned(read, self._consistency, texts)

    def insert(self, rows: ArrowStream) -> int:
        """Upsert the rows of one INSERT statement, all of which are there."""
        return self._table.insert(pa.RecordBatchReader.from_stream(rows).read_all(), self.schema)

    def _exact(self, predicates: Sequence[Predicate]) -> Iterator[Filter]:
        for predicate in predicates:
            sql = predicate.sql
            if sql is not None and (text := lance_filter(sql, self.schema)) is not None:
                yield Filter(sql, predicate.evaluate, tuple(predicate.columns), text)


def answers(filters: Sequence[Predicate], schema: pa.Schema) -> list[str]:
    """Which of these filters the sources of a table apply as DataFusion would."""
    return [_answer(predicate.sql, schema) for predicate in filters]


def of_columns(snapshot: Snapshot, schema: pa.Schema, name: str | None = None) -> Snapshot:
    """The snapshot, if it has the columns of `schema`.

    Raises ReopenError where a table was registered with these as `name`, else RetryError.
    """
    if snapshot.info.schema.equals(schema):
        return snapshot
    if name is None:
        raise RetryError("the columns of the table have just changed: run the query again")
    raise ReopenError(
        f"the columns of {name!r} have changed since it was registered: "
        f"register it again to see {snapshot.info.schema.names}"
    )


def _answer(sql: str | None, schema: pa.Schema) -> str:
    if sql is None:
        return "unsupported"
    return "inexact" if lance_filter(sql, schema) is None else "exact"
