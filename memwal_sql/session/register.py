"""Registers a table, and its metadata tables, in a DataFusion session."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from datafusion import SessionContext

from exec_nodes.node import Node, Statistics
from memwal_native import MountedTable
from memwal_sql.arguments import quoted
from memwal_sql.errors import InvalidCallError, UnsupportedError
from memwal_sql.history.tables import FILES, HISTORY, SNAPSHOTS
from memwal_sql.read.inspect import GENERATIONS, INDEXES, REGIONS, WAL
from memwal_sql.session.provider import SqlTable, TableProvider
from memwal_sql.session.table_functions import Registered, name_parts, search_functions
from memwal_sql.session.version import use_datafusion
from memwal_sql.write.ingest.missing import ERROR

if TYPE_CHECKING:
    from memwal_native import Predicate

use_datafusion()

# Matches names that DataFusion reads unchanged without quotes.
_PLAIN = re.compile("[a-z_][a-z0-9_$]*")
METADATA_TABLES = ("regions", "generations", "wal", "indexes", "history", "snapshots", "files")


class RegisteredTable(SqlTable, Protocol):
    """The parts of a table that `register` needs; the methods read the state at each call."""

    def refresh(self) -> None:
        """Look for the newest version; `schema` then has its columns."""

    def regions(self) -> pa.Table:
        """One row for each region."""

    def generations(self) -> pa.Table:
        """One row for each generation."""

    def wal(self) -> pa.Table:
        """One row for each WAL entry."""

    def indexes(self) -> pa.Table:
        """One row for each index."""

    def history(self) -> pa.Table:
        """One row for each base version."""

    def snapshots(self) -> pa.Table:
        """One row for each name of a past state."""

    def files(self) -> pa.Table:
        """One row for each file."""


def register(
    ctx: SessionContext,
    name: str,
    table: RegisteredTable,
    consistency: str = "strong",
    *,
    missing: str = ERROR,
    approximate: bool = False,
) -> None:
    """Register `table` in `ctx` as `name`, and its state as `name$regions` and the other
    `METADATA_TABLES`; see `memwal_sql.register`.

    Raises InvalidCallError for an unknown consistency or `missing` and for an empty name.
    """
    made = mounted(ctx, name, table, consistency, missing=missing, approximate=approximate)
    _put(ctx, name, made)


def mounted(
    ctx: SessionContext,
    name: str,
    table: RegisteredTable,
    consistency: str = "strong",
    *,
    missing: str = ERROR,
    approximate: bool = False,
) -> MountedTable:
    """The table to put into the session under `name`; its metadata tables are put there by this
    call. Raises as `register` does."""
    if not name_parts(name)[-1]:
        raise InvalidCallError("a table needs a name to be registered under")
    table.refresh()
    functions = search_functions(ctx)
    provider = TableProvider(name, table, consistency, missing, approximate, functions.slot)
    made = MountedTable(provider)
    for old in functions.left_behind(ctx):  # tables that somebody deregistered directly
        _remove_about(ctx, old)
    columns, ids = provider.schema, provider.field_ids
    functions.add(Registered(name, table, columns, consistency, made, missing, approximate, ids))
    for suffix, about in metadata_tables(name, table):
        _put(ctx, metadata_name(name, suffix), about)
    return made


def metadata_tables(name: str, table: RegisteredTable) -> Iterator[tuple[str, MountedTable]]:
    """The metadata tables of a table, with the ends of their names."""
    loads: tuple[tuple[pa.Schema, Callable[[], pa.Table]], ...] = (
        (REGIONS, table.regions),
        (GENERATIONS, table.generations),
        (WAL, table.wal),
        (INDEXES, table.indexes),
        (HISTORY, table.history),
        (SNAPSHOTS, table.snapshots),
        (FILES, table.files),
    )
    for suffix, (schema, load) in zip(METADATA_TABLES, loads, strict=True):
        about = metadata_name(name, suffix)
        yield suffix, MountedTable(MetadataProvider(about, schema, load))


def deregister(ctx: SessionContext, name: str) -> None:
    """Undo `register`; the table functions stay for other tables.

    After `ctx.deregister_table(name)` the metadata tables go with this call or the next `register`;
    another table that has got the name meanwhile stays.
    """
    functions = search_functions(ctx)
    if functions.remove(name, ctx):
        ctx.deregister_table(name)
    _remove_about(ctx, name)


def _remove_about(ctx: SessionContext, name: str) -> None:
    for suffix in METADATA_TABLES:
        ctx.deregister_table(metadata_name(name, suffix))


def metadata_name(name: str, suffix: str) -> str:
    """`events$regions` for `events`, `"My events$regions"` for `"My events"` and `My events`."""
    *before, table = name_parts(name)
    parts = (*before, f"{table}${suffix}")
    return ".".join(part if _PLAIN.fullmatch(part) else quoted(part) for part in parts)


def _put(ctx: SessionContext, name: str, table: MountedTable) -> None:
    if ctx.table_exist(name):
        ctx.deregister_table(name)
    ctx.register_table(name, table)


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
        """`"inexact"` for all, as DataFusion applies them."""
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
