"""The DataFusion provider of a table: filter pushdown, plans, and INSERT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from threading import local
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from exec_nodes.evolution.differences import differences, with_ids
from exec_nodes.evolution.known import has_known, widened_since
from exec_nodes.live.live_rows_exec import LiveRowsExec
from exec_nodes.node import Node, opened
from memwal_native import LiveAccess, LiveAnswers, note_scans
from memwal_sql.errors import InvalidCallError, ReopenError
from memwal_sql.read.planning import scan, watched
from memwal_sql.read.snapshots import check_consistency
from memwal_sql.session.known_columns import known_scan
from memwal_sql.session.scalar_functions import TextMatches, analyzed, calls_match, text_matches
from memwal_sql.session.transaction_slot import TransactionSlot
from memwal_sql.session.version import use_datafusion
from memwal_sql.write.ingest.missing import ERROR, check_missing
from memwal_sql.write.result import WriteResult
from planner.model import Planner, Query, Snapshot
from planner.predicates.condition import Condition, condition_of
from planner.search.nearest import Nearest, plan_nearest

if TYPE_CHECKING:
    import memwal_native
    from planner.predicates.expr import Predicate

use_datafusion()

# Most conditions that a table remembers.
_KNOWN = 64


_WHOLE_ROWS = (
    "as an INSERT does that leaves these columns out; INSERT replaces whole rows: give every "
    "column a value. If NULL is meant, write it into VALUES, or into INSERT INTO t (all columns) "
    'SELECT ..., NULL with a table registered by register(ctx, "t", table, missing="null")'
)


class SqlTable(Protocol):
    """The parts of a table that SQL needs."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    @property
    def field_ids(self) -> Mapping[str, int]:
        """The ids of the columns by name."""

    @property
    def answers(self) -> LiveAnswers | None:
        """Answers from live rows; None if it has none ever."""

    def planned(
        self, planner: Planner, consistency: str = "strong", filters: Sequence[Predicate] = ()
    ) -> Node:
        """The plan of a query over one snapshot, without the regions that `filters` rule out."""

    def insert(self, rows: pa.Table, columns: pa.Schema) -> WriteResult:
        """Upsert `rows`, durably.

        Raises ReopenError if the table has other columns than `columns`.
        """


class _Noted(local):
    scans: list[tuple[SqlTable, str]] | None = None
    general: list[tuple[str, Node]] | None = None


_noted = _Noted()


@contextmanager
def noted_scans() -> Iterator[Sequence[tuple[SqlTable, str]]]:
    """A context that yields the tables scanned by plans made in this thread, each with its
    consistency. Names do not tell, as a view keeps the table that a name meant when it was
    created."""
    before, noted = _noted.scans, list[tuple[SqlTable, str]]()
    _noted.scans = noted
    is_noted = note_scans(True)
    try:
        yield noted
    finally:
        _noted.scans = before
        note_scans(is_noted)


@contextmanager
def general_plans() -> Iterator[Sequence[tuple[str, Node]]]:
    """A context that yields, of each scan of live rows in plans made in this thread, the name or
    the URI of the table, and the plan of the general path over the same snapshot."""
    noted = list[tuple[str, Node]]()
    with noted_scans():  # so that none is planned without Python
        _noted.general = noted
        try:
            yield noted
        finally:
            _noted.general = None


def note_scan(table: SqlTable, consistency: str) -> None:
    """Note that a plan will scan a table; DataFusion calls in the thread that makes the plan."""
    if _noted.scans is not None:
        _noted.scans.append((table, consistency))


@dataclass(frozen=True)
class Scan:
    """The plan of a scan.

    Attributes:
        matches: the texts that its conditions match; None if they do not call `match`.
    """

    node: Node
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
        slot: TransactionSlot | None = None,
        nearest: Nearest | None = None,
    ) -> None:
        """`name` is the registered name, if any. `missing` says what to write into columns that an
        INSERT leaves out. `slot` is the session's. `nearest`: the provider is that of a query which
        needs only these rows."""
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
        self._nearest = nearest
        if consistency == "strong" and table.answers is not None:
            ids = [self.field_ids.get(name, -1) for name in self.schema.names]
            self.live = LiveAccess(table.answers, self._slot.is_open, ids)

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
        planned: list[Snapshot] = []

        def planner(snapshot: Snapshot) -> Node:
            snapshot = of_columns(
                snapshot,
                self.schema,
                self.field_ids,
                self._name,
                inside=table is not self._table,
            )
            if snapshot.regions_pruned and len(exact) < len(conditions):
                snapshot = _not_compared(snapshot)
            query = Query(tuple(columns), analyzed(exact, snapshot), limit)
            planned.append(snapshot)
            if wider := widened_since(snapshot.info.schema, self.schema):
                return known_scan(query, snapshot, self.schema, wider)
            scanned = scan(query, snapshot)
            if self._nearest is None or len(exact) < len(conditions):
                return scanned
            return plan_nearest(query, self._nearest, opened(scanned), snapshot) or scanned

        predicates = [condition.predicate for condition in conditions]
        node = table.planned(planner, self._consistency, predicates)
        snapshot = planned[-1]
        if _noted.general is not None and _reads_live_rows(node):
            name = self._name or str(getattr(table, "uri", "a table"))
            _noted.general.append((name, planner(replace(snapshot, live=None))))
        return Scan(watched(node, snapshot), text_matches(exact, snapshot))

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


def _reads_live_rows(node: Node) -> bool:
    return isinstance(node, LiveRowsExec) or any(map(_reads_live_rows, node.children))


def _not_compared(snapshot: Snapshot) -> Snapshot:
    """The snapshot for a query of which a condition that it does not apply may rule regions out:
    the plan over the files may have older rows of theirs, the one over live rows has the newest."""
    live = snapshot.live
    return snapshot if live is None else replace(snapshot, live=replace(live, is_checked=False))


def _column(field: pa.Field) -> str:
    return f"{field.name} {field.type}{'' if field.nullable else ' not null'}"


def _answer(condition: Condition) -> str:
    return "exact" if _is_exact(condition) else "inexact"


def _is_exact(condition: Condition) -> bool:
    """Whether sources apply it as DataFusion would, or only they can apply it."""
    return condition.lance is not None or calls_match(condition)
