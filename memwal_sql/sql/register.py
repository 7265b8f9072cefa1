"""Puts a table and the tables about it into a DataFusion session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa
from datafusion import SessionContext

from memwal_native import MountedTable
from memwal_sql.errors import InvalidCallError
from memwal_sql.read.inspect import GENERATIONS, INDEXES, REGIONS, WAL
from memwal_sql.sql.functions import search_functions
from memwal_sql.sql.metadata import MetadataProvider
from memwal_sql.sql.provider import SqlTable, TableProvider
from memwal_sql.sql.version import check_datafusion_version

check_datafusion_version()

METADATA_TABLES = ("regions", "generations", "wal", "indexes")


class RegisteredTable(SqlTable, Protocol):
    """What `register` needs of a table; the methods read its state each time."""

    def refresh(self) -> None:
        """Look for the newest version, whose columns `schema` is then."""

    def regions(self) -> pa.Table:
        """One row a region."""

    def generations(self) -> pa.Table:
        """One row a generation."""

    def wal(self) -> pa.Table:
        """One row a WAL entry."""

    def indexes(self) -> pa.Table:
        """One row an index."""


def register(
    ctx: SessionContext, name: str, table: RegisteredTable, consistency: str = "strong"
) -> None:
    """Make `table` known to SQL in `ctx` as `name`, and its state as `name$regions`,
    `name$generations`, `name$wal` and `name$indexes`; the table functions `vector_search`,
    `full_text_search` and `hybrid_search` find it under that name. The session sees the
    columns that the table has now. With its first table a session gets a rule of ours, for which
    DataFusion drops statements that were prepared before (`PREPARE`).

    Args:
        name: as SQL would write it: `events`, `schema.events`, `"My events"`. What has the name
            already is replaced.
        consistency: what queries see. `"eventual"`: the regions recorded in the MemWAL index;
            `"manifest"`: what is flushed; `"strong"`: durable rows of every writer too, and the
            buffered ones of this process.

    Raises InvalidCallError for an unknown consistency or an empty name.
    """
    if not name:
        raise InvalidCallError("a table needs a name to be registered under")
    table.refresh()
    provider = TableProvider(name, table, consistency)
    known: tuple[tuple[str, pa.Schema, Callable[[], pa.Table]], ...] = (
        ("regions", REGIONS, table.regions),
        ("generations", GENERATIONS, table.generations),
        ("wal", WAL, table.wal),
        ("indexes", INDEXES, table.indexes),
    )
    _put(ctx, name, MountedTable(provider))
    search_functions(ctx).add(name, table, consistency)
    for suffix, schema, load in known:
        about = metadata_name(name, suffix)
        _put(ctx, about, MountedTable(MetadataProvider(about, schema, load)))


def deregister(ctx: SessionContext, name: str) -> None:
    """Take back what `register` did; the table functions stay for other tables.

    `ctx.deregister_table(name)` leaves the metadata tables, and the table functions notice it only
    when they are called: call this before a table of another kind takes the name.
    """
    search_functions(ctx).remove(name)
    for about in (name, *(metadata_name(name, suffix) for suffix in METADATA_TABLES)):
        ctx.deregister_table(about)


def metadata_name(name: str, suffix: str) -> str:
    """`events$regions` for `events`, `"My events$regions"` for `"My events"`."""
    if name.endswith('"'):
        return f'{name[:-1]}${suffix}"'
    return f"{name}${suffix}"


def _put(ctx: SessionContext, name: str, table: MountedTable) -> None:
    if ctx.table_exist(name):
        ctx.deregister_table(name)
    ctx.register_table(name, table)
