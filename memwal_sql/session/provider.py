"""The DataFusion provider of a table: filter pushdown, plans, and INSERT."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from threading import local
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from exec_nodes.evolution.differences import differences, with_ids
from exec_nodes.evolution.known import has_known, widened_since
from exec_nodes.node import Node
from exec_nodes.vectors.column import Metric
from exec_nodes.vectors.nearest import Order
from memwal_sql.errors import InvalidCallError, ReopenError
from memwal_sql.read.planning import Planner, opened, scan, watched
from memwal_sql.read.snapshots import check_consistency
from memwal_sql.session.known_columns import known_scan
from memwal_sql.session.scalar_functions import TextMatches, analyzed, calls_match, text_matches
from memwal_sql.session.transaction_slot import TransactionSlot
from memwal_sql.write.ingest.missing import ERROR, check_missing
from memwal_sql.write.result import WriteResult
from planner.model import Query, Snapshot
from planner.predicates.condition import Condition, condition_of
from planner.search.nearest import Nearest, plan_nearest

if TYPE_CHECKING:
    import memwal_native
    from planner.predicates.expr import Predicate


# Most conditions that a table remembers.
_KNOWN = 64


_WHOLE_ROWS = (
    "as an INSERT does that leaves these columns out; INSERT replaces whole rows: give every "
    "column a value. If NULL is meant, write it into VALUES, or into INSERT INTO t (all columns) "
    'SELECT ..., NULL with a table registered by register(ctx, "t", table, missing="null")'
)


class ReadTable(Protocol):
    """The parts of a table that a query needs."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    @property
    def field_ids(self) -> Mapping[str, int]:
        """The ids of the columns by name."""

    def planned(
        self, planner: Planner, consistency: str = "strong", filters: Sequence[Predicate] = ()
    ) -> Node:
        """The plan of a query over one snapshot, without the regions that `filters` rule out."""


class SqlTable(ReadTable, Protocol):
    """The parts of a table that SQL needs."""

    def insert(self, rows: pa.Table, columns: pa.Schema) -> WriteResult:
        """Upsert `rows`, durably.

        Raises ReopenError if the table has other columns than `columns`.
        """


class _Noted(local):
    scans: list[tuple[ReadTable, str]] | None = None


_noted = _Noted()


@contextmanager
def noted_scans() -> Iterator[Sequence[tuple[ReadTable, str]]]:
    """A context that yields the tables scanned by plans made in this thread, each with its
    consistency. Names do not tell, as a view keeps the table that a name meant when it was
    created."""
    before, noted = _noted.scans, list[tuple[ReadTable, str]]()
    _noted.scans = noted
    try:
        yield noted
    finally:
        _noted.scans = before


def note_scan(table: ReadTable, consistency: str) -> None:
    """Note that a plan will scan a table; DataFusion calls in the thread that makes the plan."""
    if _noted.scans is not None:
        _noted.scans.append((table, consistency))


@dataclass(frozen=True)
class Scan:
    """The plan of a scan, and further plans for its rows.

    Attributes:
        nearest: maps `(column, metric, vector, k, nulls_first)` to a plan of the same columns whose
            rows contain the first `k` by that distance, in DataFusion's order; None if there is
            none.
        matches: the texts that its conditions match; None if they do not call `match`.
    """

    node: Node
    nearest: Callable[[str, Metric, Sequence[float], int, bool], Node | None]
    matches: TextMatches | None

    def check_beside(self, other: Scan) -> None:
        """Raise UnsupportedError if DataFusion may have copied a condition from one scan to the
        other, where it would mean something else."""
        if self.matches is not None and other.matches is not None:
            self.matches.check_beside(other.matches)


class TableProvider:
    """The rows of a table at one consistency level, as `memwal_native.MountedTable` mounts them.

    Every query is planned over a snapshot of its own, taken when DataFusion plans the scan.
    """

    def __init__(
        self,
        name: str | None,
        table: SqlTable,
        consistency: str = "strong",
        missing: str = ERROR,
        approximate: bool = False,
        slot: TransactionSlot | None = None,
    ) -> None:
        """`name` is the registered name, if any. `missing` says what to write into columns that an
        INSERT leaves out, and `approximate` whether ORDER BY a distance may use an index. `slot` is
        the session's."""
        check_consistency(consistency)
        check_missing(missing)
        self.schema = table.schema
        self.field_ids = table.field_ids
        # DataFusion offers each filter several times, and again for the scan.
        self._condition = lru_cache(_KNOWN)(partial(condition_of, schema=self.schema))
        self._name = name
        self._table = table
        self._slot = slot or TransactionSlot()
        self._consistency = consistency
        self._missing = missing
        self._approximate = approximate

    def supports_filters_pushdown(self, filters: Sequence[memwal_native.Predicate]) -> list[str]:
        """`"exact"` for the filters that every source evaluates as DataFusion would.

        Others may still rule regions out; DataFusion applies them to the rows.
        """
        return list(map(_answer, map(self._condition, filters)))

    def scan(
        self,
        projection: Sequence[int] | None,
        filters: Sequence[memwal_native.Predicate],
        limit: int | None,
    ) -> Scan:
        """The plan of one query; `filters` are those that were answered `"exact"` or `"inexact"`.

        `limit` is given only if every filter is exact.
        """
        table = self._table if self._slot.open is None else self._slot.inside(self._table)
        note_scan(table, self._consistency)
        conditions = [self._condition(filter_) for filter_ in filters]
        exact = tuple(condition for condition in conditions if _is_exact(condition))
        names = self.schema.names
        columns = names if projection is None else [names[index] for index in projection]
        planned: list[tuple[Query, Snapshot, bool]] = []

        def planner(snapshot: Snapshot) -> Node:
            snapshot = of_columns(
                snapshot,
                self.schema,
                self.field_ids,
                self._name,
                inside=table is not self._table,
            )
            query = Query(tuple(columns), analyzed(exact, snapshot), limit)
            wider = widened_since(snapshot.info.schema, self.schema)
            planned.append((query, snapshot, bool(wider)))
            if wider:
                return known_scan(query, snapshot, self.schema, wider)
            return scan(query, snapshot)

        predicates = [condition.predicate for condition in conditions]
        node = table.planned(planner, self._consistency, predicates)
        query, snapshot, is_wider = planned[-1]
        nearest = _none if is_wider else partial(self._nearest, query, snapshot, node)
        return Scan(watched(node, snapshot), nearest, text_matches(exact, snapshot))

    def _nearest(
        self,
        query: Query,
        snapshot: Snapshot,
        scanned: Node,
        column: str,
        metric: Metric,
        vector: Sequence[float],
        k: int,
        nulls_first: bool,
    ) -> Node | None:
        order = Order(exact=not self._approximate, nulls_first=nulls_first)
        plan = plan_nearest(query, Nearest(column, metric, vector, k, order), scanned, snapshot)
        return None if plan is None else watched(opened(plan), snapshot)

    def check_insert(self, nulls: Sequence[str]) -> None:
        """Raise InvalidCallError if an INSERT sets columns to NULL that it may have left out.

        Columns that are left out and NULLs in SELECT give the same plan, in which `nulls` are NULL
        in every row.
        """
        names = [name for name in nulls if self.schema.field(name).nullable]
        if names and self._missing == ERROR:
            raise InvalidCallError(f"this INSERT sets {names} to NULL in every row, {_WHOLE_ROWS}")

    def insert(self, rows: memwal_native.ArrowStream) -> int:
        """Upsert the rows of one INSERT statement."""
        self._slot.check_begun()
        table = self._slot.inside(self._table)
        return table.insert(pa.RecordBatchReader.from_stream(rows).read_all(), self.schema).rows


def answers(filters: Sequence[memwal_native.Predicate], schema: pa.Schema) -> list[str]:
    """Whether the sources of a table apply each filter as DataFusion would: `"exact"` if so."""
    return [_answer(condition_of(filter_, schema)) for filter_ in filters]


def of_columns(
    snapshot: Snapshot,
    schema: pa.Schema,
    field_ids: Mapping[str, int],
    name: str | None = None,
    *,
    inside: bool = False,
) -> Snapshot:
    """The snapshot, if it has the columns of `schema`, with these ids, in these types or wider
    ones; it may have others. `name` is what a table with these columns was registered as, if
    anything. The snapshot may be that of a transaction, and then is `inside`. Raises
    ReopenError."""
    info = snapshot.info
    if has_known(info.schema, schema, info.field_ids, field_ids):
        return snapshot
    schema, current = with_ids(schema, field_ids), with_ids(info.schema, info.field_ids)
    if name is None:
        raise ReopenError(
            "the columns of a table have changed since this query, or a view in it, was made "
            f"({differences(schema, current)}): make it again"
        )
    raise other_columns(name, schema, current, inside=inside)


def other_columns(
    name: str, then: pa.Schema, now: pa.Schema, *, inside: bool = False
) -> ReopenError:
    """The error of a table that was registered as `name` with the columns `then`, and has `now`;
    `inside` a transaction it may have been registered later than the transaction reads it."""
    before, after = then.names, now.names
    if before == after:
        before, after = ([_column(field) for field in schema] for schema in (then, now))
    if inside:
        return ReopenError(
            f"{name!r} was registered with {before}, and the open transaction reads it with "
            f"{after}: end the transaction, and register the table again if it has other columns"
        )
    return ReopenError(
        f"the columns of {name!r} have changed since it was registered "
        f"({differences(then, now)}): register it again, and create its views and frames again"
    )


def _none(*_: object) -> None:
    return None


def _column(field: pa.Field) -> str:
    return f"{field.name} {field.type}{'' if field.nullable else ' not null'}"


def _answer(condition: Condition) -> str:
    return "exact" if _is_exact(condition) else "inexact"


def _is_exact(condition: Condition) -> bool:
    """Whether sources apply it as DataFusion would, or only they can apply it."""
    return condition.lance is not None or calls_match(condition)
