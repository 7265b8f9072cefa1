"""Tables in one snapshot, whatever names a statement reads them by."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Protocol

import pyarrow as pa

from exec_nodes.keys.keys import KeyBatch
from exec_nodes.node import Node
from memwal_sql.errors import UnsupportedError
from memwal_sql.read.lookup import distinct, get_in
from memwal_sql.read.planning import Planner, opened
from memwal_sql.read.snapshots import CONSISTENCIES
from memwal_sql.session.provider import SqlTable
from memwal_sql.session.table_functions import TableName
from memwal_sql.statements.queries.as_of import Moment, PastOf
from memwal_sql.statements.queries.seen_columns import ColumnsChanged
from memwal_sql.write.conditional.resolve import ReadChanges
from memwal_sql.write.result import WriteResult
from memwal_sql.write.statement import SNAPSHOT
from planner.model import Snapshot


class WritableTable(SqlTable, PastOf, Protocol):
    """What a statement needs of a table."""

    @property
    def uri(self) -> str:
        """Where it is."""

    @property
    def newest_of(self) -> Hashable | None:
        """The table whose newest state it reads, told from all others; None for a past one."""

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The primary key's columns."""

    def snapshot(self, consistency: str = "strong") -> Snapshot:
        """The state of the table."""

    def get(self, keys: pa.Table) -> pa.Table:
        """The rows with these keys as they are now, whole, in the order asked."""

    def refresh(self) -> None:
        """Look for the newest version, whose columns `schema` is then."""

    def close(self) -> None:
        """Close the writer of statements."""

    def replace_rows(self, rows: pa.Table | Callable[[], pa.Table]) -> int:
        """Replace all rows, by those of a function where they are made of the table's own."""

    def change(
        self,
        read: ReadChanges,
        columns: pa.Schema,
        *,
        whole: bool = False,
        isolation: str = SNAPSHOT,
    ) -> WriteResult:
        """Write what a statement computes from the rows that it reads."""


class State:
    """One state of a table, which the first to read it takes, for all of its names."""

    def __init__(self, table: WritableTable) -> None:
        self._table = table
        self._lock = Lock()
        self._taken: tuple[int, Snapshot] | None = None

    def snapshot(self, consistency: str) -> Snapshot:
        """It; another one only for a query of the statement that asks for more than the first."""
        level = CONSISTENCIES.index(consistency)
        with self._lock:
            if self._taken is None or self._taken[0] < level:
                self._taken = level, self._table.snapshot(consistency)
            return self._taken[1]


class OneSnapshot:
    """A table in the snapshot that the first to read it takes."""

    def __init__(
        self,
        table: WritableTable,
        columns: pa.Schema,
        changed: ColumnsChanged | None = None,
        state: State | None = None,
    ) -> None:
        """`columns` are those that queries are made for; `changed` is the error for others in the
        snapshot, of a statement that runs now; `state` is that of its other names."""
        self.schema = columns
        self.uri = table.uri
        self._changed = changed
        self._state = State(table) if state is None else state

    def planned(self, planner: Planner, consistency: str = "strong", _: object = ()) -> Node:
        """The plan of one of the scans."""
        return opened(planner(self._taken(consistency)))

    def get(self, keys: pa.Table) -> pa.Table:
        """The rows with these keys, whole, of a snapshot that is strong if this takes it."""
        snapshot = self._taken("strong")
        return get_in(snapshot, distinct(KeyBatch(keys)), self.schema.names)

    def _taken(self, consistency: str) -> Snapshot:
        snapshot = self._state.snapshot(consistency)
        schema = snapshot.info.schema
        if self._changed is not None and not schema.equals(self.schema):
            raise self._changed(schema)
        return snapshot

    def insert(self, _: pa.Table, columns: pa.Schema) -> int:
        """Raise UnsupportedError."""
        raise UnsupportedError(f"a snapshot of the columns {columns.names} can't be written")


class Pins:
    """The tables that the queries of one statement read, each in the snapshot that the first scan
    of all took.

    Attributes:
        tables: by the names that they have in the session.
        states: by what they are of.
    """

    def __init__(self) -> None:
        self.tables: dict[tuple[TableName, Moment | None], OneSnapshot] = {}
        self.states: dict[Hashable, State] = {}

    def state(self, name: TableName, table: WritableTable) -> State:
        """That of a table under one of its names; a past one has one under each."""
        return self.states.setdefault(table.newest_of or name, State(table))
