"""The queries of a statement: a table that one names more than once is read in one snapshot."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any, Protocol, cast

import datafusion
import pyarrow as pa
from datafusion.catalog import Schema, Table

from exec_nodes.node import Node
from memwal_native import MountedTable, table_references
from memwal_sql.errors import InvalidCallError, UnsupportedError
from memwal_sql.read.planning import Planner, opened
from memwal_sql.session.clauses import check_clauses
from memwal_sql.session.errors import original_error
from memwal_sql.session.front.tokens import quoted
from memwal_sql.session.provider import SqlTable, TableProvider
from memwal_sql.session.table_functions import TableName, search_functions, whole_name
from memwal_sql.write.conditional.resolve import ReadChanges
from memwal_sql.write.result import WriteResult
from planner.model import Snapshot

_PARTS = 3
_numbers = itertools.count()


class WritableTable(SqlTable, Protocol):
    """What a statement needs of a table."""

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The primary key's columns."""

    def snapshot(self, consistency: str = "strong") -> Snapshot:
        """The state of the table."""

    def change(self, read: ReadChanges, columns: pa.Schema) -> WriteResult:
        """Write what a statement computes from the rows that it reads."""


class _OneSnapshot:
    """A table in the snapshot that its first scan takes."""

    def __init__(self, table: WritableTable) -> None:
        self._table = table
        self._lock = Lock()
        self._snapshot: Snapshot | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._table.schema

    def planned(self, planner: Planner, consistency: str = "strong", _: object = ()) -> Node:
        """The plan of one of the scans."""
        with self._lock:
            if self._snapshot is None:
                self._snapshot = self._table.snapshot(consistency)
        return opened(planner(self._snapshot))

    def insert(self, _: pa.Table, columns: pa.Schema) -> int:
        """Raise UnsupportedError."""
        raise UnsupportedError(f"a snapshot of the columns {columns.names} can't be written")


def frame(
    ctx: datafusion.SessionContext,
    query: str,
    parameters: Mapping[str, Any],
    strong: TableName | None = None,
) -> datafusion.DataFrame:
    """The result of a query over the tables of a session, each in one snapshot, taken when it is
    first asked for.

    Args:
        strong: a table that is read as it is now, whatever its consistency in the session.

    Raises InvalidCallError for what DataFusion can't plan, UnsupportedError for what it would leave
    out.
    """
    check_clauses(query)
    named = [
        (start, end, whole_name(parts))
        for start, end, parts in table_references(query)
        if len(parts) <= _PARTS
    ]
    functions = search_functions(ctx)
    schemas: dict[TableName, str] = {}
    tables: dict[str, tuple[str, MountedTable]] = {}
    for name, times in Counter(name for _, _, name in named).items():
        found = functions.table(name, ctx) if times > 1 or name == strong else None
        if found is not None:
            table, consistency = found
            level = "strong" if name == strong else consistency
            schemas[name] = f"memwal$statement{next(_numbers)}"
            mounted = MountedTable(
                TableProvider(None, _OneSnapshot(cast(WritableTable, table)), level)
            )
            tables[schemas[name]] = name[-1], mounted
    for start, end, name in sorted(named, reverse=True):
        if name in schemas:  # under its own name, which its columns go by
            query = f"{query[:start]}{quoted(schemas[name])}.{quoted(name[-1])}{query[end:]}"
    with _in_schemas(ctx, tables), planning_errors():
        return ctx.sql(query, param_values=dict(parameters))


@contextmanager
def _in_schemas(
    ctx: datafusion.SessionContext, tables: Mapping[str, tuple[str, MountedTable]]
) -> Iterator[None]:
    """Within it, the session has these schemas, of a table each; what is planned keeps these."""
    catalog = ctx.catalog()
    for schema, (name, table) in tables.items():
        own = Schema.memory_schema(ctx)
        own.register_table(name, Table(table, ctx))
        catalog.register_schema(schema, own)
    try:
        yield
    finally:
        for schema in tables:
            catalog.deregister_schema(schema)


@contextmanager
def planning_errors() -> Iterator[None]:
    """Within it, what DataFusion refuses is an InvalidCallError, and what failed in a table of ours
    is its own error."""
    try:
        yield
    except Exception as error:  # DataFusion raises nothing more specific
        original = original_error(error)
        if original is error:
            raise
        if original is None:
            original = InvalidCallError(str(error).removeprefix("DataFusion error: "))
        raise original from error
