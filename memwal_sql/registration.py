"""Tables and their places in DataFusion sessions."""

from __future__ import annotations

from os import PathLike
from typing import Unpack

from datafusion import SessionContext

from memwal_sql.create import Opening, open_table
from memwal_sql.errors import InvalidCallError
from memwal_sql.read.snapshots import Consistency
from memwal_sql.session import register as sql
from memwal_sql.table import Table
from memwal_sql.write.ingest.missing import ERROR, MissingInInsert


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
        approximate: whether `ORDER BY` a distance `LIMIT k` may find its rows through a vector
            index, which may miss some. It is exact otherwise.
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
    sql.register(ctx, name, table, consistency, missing=missing, approximate=approximate)
    return table
