"""Tables and their places in DataFusion sessions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from os import PathLike
from typing import Unpack

import pyarrow as pa
from datafusion import SessionContext

from memwal_native import MountedTable
from memwal_sql.arguments import quoted
from memwal_sql.create import Opening, open_table
from memwal_sql.errors import InvalidCallError
from memwal_sql.history.tables import FILES, HISTORY, SNAPSHOTS
from memwal_sql.read.inspect import GENERATIONS, INDEXES, REGIONS, WAL
from memwal_sql.read.snapshots import Consistency
from memwal_sql.session.metadata import MetadataProvider
from memwal_sql.session.provider import TableProvider
from memwal_sql.session.registered import Registered, name_parts
from memwal_sql.session.session import session_of
from memwal_sql.table import Table
from memwal_sql.write.ingest.missing import ERROR, MissingInInsert

# Matches names that DataFusion reads unchanged without quotes.
_PLAIN = re.compile("[a-z_][a-z0-9_$]*")
METADATA_TABLES: Mapping[str, tuple[pa.Schema, Callable[[Table], pa.Table]]] = {
    "regions": (REGIONS, Table.regions),
    "generations": (GENERATIONS, Table.generations),
    "wal": (WAL, Table.wal),
    "indexes": (INDEXES, Table.indexes),
    "history": (HISTORY, Table.history),
    "snapshots": (SNAPSHOTS, Table.snapshots),
    "files": (FILES, Table.files),
}
"""The metadata tables of a table, by the ends of their names: their columns, and their rows."""


def register(
    ctx: SessionContext,
    name: str,
    table: Table | str | PathLike[str],
    consistency: Consistency = "strong",
    *,
    missing: MissingInInsert = ERROR,
    approximate: bool = False,
    **opening: Unpack[Opening],
) -> Table:
    """Make a table known to SQL in `ctx` as `name`, and its state as `name$regions`,
    `name$generations`, `name$wal`, `name$indexes`, `name$history`, `name$snapshots` and
    `name$files`; the table functions `vector_search`, `full_text_search` and `hybrid_search` find
    it under that name. The session sees the columns that the table has now. With its first table a
    session gets a rule of ours, for which DataFusion drops statements that were prepared before
    (`PREPARE`).

    Args:
        name: as SQL would write it: `events`, `schema.events`, `"My events"`. A text that is no
            name in SQL, as `My events`, is one as it is. What has the name already is replaced.
        table: a table, or where it is.
        consistency: what queries see. `"eventual"`: the regions recorded in the MemWAL index;
            `"manifest"`: what is flushed; `"strong"`: durable rows of every writer too, and the
            buffered ones of this process.
        missing: what becomes of columns that INSERT does not name, as it replaces whole rows: an
            `"error"`, or `"null"`. DataFusion shows no difference between them and a NULL in
            SELECT, which is an error too then; NULLs in VALUES are fine.
        approximate: whether `ORDER BY` a distance `LIMIT k` in `mw.sql` may find its rows through
            a vector index, which may miss some. It is exact otherwise.
        opening: what `open_table` takes beside the place: `version`, `storage_options`, ...

    Returns the table. Raises InvalidCallError for an unknown consistency, an empty name, and for
    what `open_table` raises it for.

    Examples:
        >>> context = datafusion.SessionContext()
        >>> table = mw.register(context, "t", table)
        >>> context.sql("SELECT max(degrees) AS top FROM t").to_pylist()
        [{'top': 16.0}]
    """
    if isinstance(table, str | PathLike):
        table = open_table(table, **opening)
    elif opening:
        raise InvalidCallError(
            f"{sorted(opening)} say how to open a table, and this one is open: give its URI"
        )
    elif not isinstance(table, Table):
        raise InvalidCallError(
            f"{table!r} is not a table of memwal_sql, nor the place of one; of a table of mw.aio, "
            "give its blocking"
        )
    mount(ctx, name, table, consistency, missing=missing, approximate=approximate)
    return table


def mount(
    ctx: SessionContext,
    name: str,
    table: Table,
    consistency: str = "strong",
    *,
    missing: str = ERROR,
    approximate: bool = False,
) -> None:
    """As `register`, of a table that is open."""
    if not name_parts(name)[-1]:
        raise InvalidCallError("a table needs a name to be registered under")
    table.refresh()
    session = session_of(ctx)
    provider = TableProvider(name, table, consistency, missing, session.slot)
    mounted = MountedTable(provider)
    for old in session.left_behind(ctx):  # tables that somebody deregistered directly
        _remove_about(ctx, old)
    columns, ids = provider.schema, provider.field_ids
    session.add(Registered(name, table, columns, consistency, mounted, missing, approximate, ids))
    for suffix, about in metadata_tables(name, table):
        _put(ctx, metadata_name(name, suffix), about)
    _put(ctx, name, mounted)


def metadata_tables(name: str, table: Table) -> Iterator[tuple[str, MountedTable]]:
    """The metadata tables of a table, with the ends of their names."""
    for suffix, (schema, load) in METADATA_TABLES.items():
        about = metadata_name(name, suffix)
        yield suffix, MountedTable(MetadataProvider(about, schema, partial(load, table)))


def deregister(ctx: SessionContext, name: str) -> None:
    """Undo `register`; the table functions stay for other tables.

    After `ctx.deregister_table(name)` the metadata tables go with this call or the next `register`;
    another table that has got the name meanwhile stays.
    """
    session = session_of(ctx)
    if session.remove(name, ctx):
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
