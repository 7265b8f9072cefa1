"""Snapshots of tables for all queries of a statement, whatever names it reads the tables by."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from threading import Lock
from typing import NoReturn

import pyarrow as pa

from exec_nodes.evolution.differences import with_ids
from exec_nodes.evolution.known import has_known
from exec_nodes.keys.keys import KeyBatch
from exec_nodes.node import Node, opened
from memwal_sql.errors import UnsupportedError
from memwal_sql.read.lookup import distinct, get_in
from memwal_sql.read.one_state import one_state
from memwal_sql.read.snapshots import CONSISTENCIES
from memwal_sql.session.registered import TableName
from memwal_sql.statements.queries.as_of import PastState
from memwal_sql.statements.queries.seen_columns import ColumnsChanged
from memwal_sql.table import Table
from planner.model import Planner, Snapshot
from planner.predicates.expr import Predicate


class TablesTogether:
    """Tables of which a query reads one state, taken at its first use of one of them."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = tables
        self._lock = Lock()
        self._taken: dict[Hashable, Snapshot] = {}

    def snapshot(self, of: Hashable) -> Snapshot:
        """The strong snapshot of the table that `newest_of` identifies so."""
        with self._lock:
            if not self._taken:
                states = one_state([table.collector for table in self._tables])
                for table, state in zip(self._tables, states, strict=True):
                    self._taken[table.newest_of] = state.snapshot
            return self._taken[of]


class SharedSnapshot:
    """A snapshot of one table, taken at first use and shared by all names the statement has for
    it.

    Attributes:
        together: takes it in one state with those of other tables, where that is needed.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.together: TablesTogether | None = None
        self._lock = Lock()
        self._taken: tuple[int, Snapshot] | None = None

    def snapshot(self, consistency: str, filters: Sequence[Predicate] = ()) -> Snapshot:
        """The snapshot; a new one only for a query that needs a higher consistency than the first.
        All snapshots of a transaction, and of the past, show one state: theirs are of the regions
        that `filters` leave, as a transaction notes which regions it has read."""
        if self.table.newest_of is None:
            return self.table.snapshot(consistency, filters)
        level = CONSISTENCIES.index(consistency)
        with self._lock:
            if self._taken is None or self._taken[0] < level:
                self._taken = level, self._take(consistency)
            return self._taken[1]

    def _take(self, consistency: str) -> Snapshot:
        if consistency != "strong" or self.together is None:
            return self.table.snapshot(consistency)
        return self.together.snapshot(self.table.newest_of)


def take_together(states: Iterable[SharedSnapshot]) -> None:
    """Take the strong snapshots of several tables in one state. Those of a transaction, and of the
    past, are taken already."""
    tables = {
        state: state.table
        for state in states
        if isinstance(state.table, Table) and state.table.newest_of is not None
    }
    if len(tables) > 1:
        together = TablesTogether(list(tables.values()))
        for state in tables:
            state.together = together


class SnapshotTable:
    """A table in a snapshot that is taken at its first use."""

    answers = None

    def __init__(
        self,
        table: Table,
        columns: pa.Schema,
        changed: ColumnsChanged | None = None,
        state: SharedSnapshot | None = None,
        *,
        is_written: bool = False,
        field_ids: Mapping[str, int] | None = None,
    ) -> None:
        """`columns` are those that queries are made for, with these `field_ids` or the table's.
        `changed` makes the error for other columns in the snapshot of a running statement. `state`
        is shared with its other names. A statement that writes the table needs its whole rows."""
        self.schema = columns
        self.field_ids = table.field_ids if field_ids is None else field_ids
        self.uri = table.uri
        self._changed = changed
        self._is_written = is_written
        self._state = SharedSnapshot(table) if state is None else state

    def planned(
        self, planner: Planner, consistency: str = "strong", filters: Sequence[Predicate] = ()
    ) -> Node:
        """The plan of a scan."""
        return opened(planner(self._taken(consistency, filters)))

    def get(self, keys: pa.Table) -> pa.Table:
        """The rows with these keys, whole; the snapshot is strong if it is taken here."""
        if self._state.table.newest_of is None:
            return self._state.table.get(keys)
        snapshot = self._taken("strong")
        return get_in(snapshot, distinct(KeyBatch(keys)), self.schema.names)

    def _taken(self, consistency: str, filters: Sequence[Predicate] = ()) -> Snapshot:
        snapshot = self._state.snapshot(consistency, filters)
        schema, ids = snapshot.info.schema, snapshot.info.field_ids
        if self._is_written:
            enough = schema.equals(self.schema)
        else:
            enough = has_known(schema, self.schema, ids, self.field_ids)
        if self._changed is not None and not enough:
            raise self._changed(with_ids(schema, ids))
        return snapshot

    def insert(self, _: pa.Table, columns: pa.Schema) -> NoReturn:
        """Raise UnsupportedError."""
        raise UnsupportedError(f"a snapshot of the columns {columns.names} can't be written")


class StatementSnapshots:
    """The tables that the queries of one statement read, each in one snapshot.

    Attributes:
        tables: by name in the session, and time.
        states: by the table that they show.
    """

    def __init__(self) -> None:
        self.tables: dict[tuple[TableName, PastState | None], SnapshotTable] = {}
        self.states: dict[Hashable, SharedSnapshot] = {}

    def state(self, name: TableName, table: Table) -> SharedSnapshot:
        """The snapshot of a table under one of its names; a past state has one for each name."""
        return self.states.setdefault(table.newest_of or name, SharedSnapshot(table))
