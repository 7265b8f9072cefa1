"""The DataFusion provider of one search: WHERE is applied before the best rows are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from exec_nodes.evolution.known import widened_since
from exec_nodes.filter_exec import FilterExec
from exec_nodes.node import Node
from exec_nodes.projection_exec import ProjectionExec
from exec_nodes.refused_exec import RefusedExec
from memwal_sql.errors import UnsupportedError
from memwal_sql.read.planning import watched
from memwal_sql.search.request import Search
from memwal_sql.session.known_columns import KnownColumnsExec
from memwal_sql.session.provider import Scan, SqlTable, note_scan, of_columns, other_columns
from memwal_sql.session.scalar_functions import analyzed, text_matches
from planner.model import Snapshot
from planner.predicates.condition import Condition, condition_of

if TYPE_CHECKING:
    from memwal_native import ArrowStream, Predicate


_AFTERWARDS = "SELECT ... FROM (SELECT ... FROM search(...) LIMIT 10) WHERE ..."


class SearchProvider:
    """The rows that a search finds: the table's columns and those that the search adds.

    Every query is planned over a snapshot of its own, taken when DataFusion plans the scan.
    """

    def __init__(
        self, name: str, table: SqlTable, columns: pa.Schema, search: Search, consistency: str
    ) -> None:
        """`columns` are the columns of the table for which `search` was made."""
        self.schema = pa.schema([*columns, *search.added])
        self._name = name
        self._table = table
        self._columns = columns
        self._field_ids = table.field_ids
        self._search = search
        self._consistency = consistency

    def supports_filters_pushdown(self, filters: Sequence[Predicate]) -> list[str]:
        """`"exact"` for all: conditions on the table's columns choose the rows to rank, and
        conditions on the ranking choose among the rows found.

        Raises UnsupportedError for a condition on both.
        """
        for predicate in filters:
            self._check(predicate)
        return ["exact"] * len(filters)

    def scan(
        self, projection: Sequence[int] | None, predicates: Sequence[Predicate], _: int | None
    ) -> Scan:
        """The plan of one query; DataFusion applies limits itself."""
        note_scan(self._table, self._consistency)
        names = self.schema.names
        projected = tuple(names if projection is None else (names[index] for index in projection))
        on_ranking = [p for p in predicates if self._ranking(p)]
        ranked = (p for p in predicates if not self._ranking(p))
        filters = tuple(condition_of(p, self._columns) for p in ranked)
        columns = tuple(name for name in projected if name in self._columns.names)

        planned = []

        def plan(snapshot: Snapshot) -> Node:
            snapshot = of_columns(snapshot, self._columns, self._field_ids)
            planned.append(snapshot)
            self._check_types(filters, snapshot.info.schema)
            return self._search.plan(columns, analyzed(filters, snapshot), snapshot)

        ruling = [] if self._search.counts_all else [condition.predicate for condition in filters]
        node = self._table.planned(plan, self._consistency, ruling)
        snapshot = planned[-1]
        node = watched(node, snapshot)
        if widened_since(snapshot.info.schema, self._columns).intersection(columns):
            own = {name: self._columns.field(name) for name in columns}
            target = pa.schema([own.get(field.name, field) for field in node.schema])
            node = KnownColumnsExec(node, target)
        if on_ranking:
            output = pa.schema([node.schema.field(name) for name in projected])
            conditions = tuple(condition_of(p, self.schema) for p in on_ranking)
            node = FilterExec(node, conditions, output)
        elif tuple(node.schema.names) != projected:
            node = ProjectionExec(node, projected)
        return Scan(node, text_matches(filters, snapshot))

    def left_over(self, conditions: Sequence[str], no_rows: ArrowStream) -> Node:
        """A plan that raises the reason why `conditions`, which DataFusion offers to no table and
        would apply to the rows found, can't be used."""
        reason = (
            f"{' AND '.join(conditions)} can't choose the rows that {self._name} ranks: DataFusion "
            "offers no table conditions with the value of a subquery, or with a function such as "
            "random(). To choose the rows to rank, give the values themselves. To choose among the "
            f"rows found, put a LIMIT between: {_AFTERWARDS}"
        )
        return RefusedExec(reason, pa.RecordBatchReader.from_stream(no_rows).schema)

    def check_insert(self, _: Sequence[str]) -> None:
        """Raise UnsupportedError."""
        raise UnsupportedError(f"{self._name} is a search and can't be written")

    def _check_types(self, filters: Sequence[Condition], now: pa.Schema) -> None:
        """Raise ReopenError for a condition, which is of the old type, on a column that was widened
        since: it chooses the rows to rank."""
        wider = widened_since(now, self._columns)
        if any(wider.intersection(condition.columns) for condition in filters):
            raise other_columns(self._name, self._columns, now)

    def _ranking(self, predicate: Predicate) -> set[str]:
        return set(self._search.added.names).intersection(predicate.columns)

    def _check(self, predicate: Predicate) -> None:
        ranking = self._ranking(predicate)
        if ranking and not ranking.issuperset(predicate.columns):
            raise UnsupportedError(
                f"the condition {predicate.sql or predicate!r} is about columns of the table and "
                f"about {sorted(ranking)}: the former choose the rows to rank, the latter the rows "
                "found. Give two conditions, or put the search into a subquery with LIMIT"
            )
