"""`mw.sql`: the statements of a session, with those that DataFusion has not."""

from __future__ import annotations

from typing import Any

import datafusion
import pyarrow as pa

from memwal_sql.session.front.change_rows import changed_rows
from memwal_sql.session.front.one_snapshot import frame, planning_errors
from memwal_sql.session.front.tokens import statement_of

_QUERIES = ("SELECT", "WITH")


def sql(ctx: datafusion.SessionContext, text: str, **parameters: Any) -> datafusion.DataFrame:
    """Run one SQL statement in a session, with DELETE, UPDATE and TRUNCATE of its MemWAL tables.

        mw.sql(ctx, "UPDATE t SET n = n + $more WHERE id IN (SELECT id FROM due)", more=1)

    These run when this is called, once, and are durable when it returns; the frame has one row,
    `count`: how many rows were changed. They read a strong snapshot. No write of a row that others
    make meanwhile is lost: rows that somebody wrote after they were read are read and computed
    again. Rows that begin to meet the condition meanwhile may stay as they are.

    Queries are lazy, as `ctx.sql` has them; one that names a table several times reads it in one
    snapshot. All other statements are handed to DataFusion as they are.

    Args:
        ctx: the session in which the tables were registered.
        text: one statement; `DELETE FROM t [AS a] [USING ...] [WHERE ...]`,
            `UPDATE t [AS a] SET column = expression, ... [FROM ...] [WHERE ...]` with conditions of
            any kind, and `TRUNCATE [TABLE] t`.
        parameters: the values of `$name` in the text.

    Raises InvalidCallError, with the place, for a statement that can't be read, for a primary key
    column in SET, and for a row that several rows of FROM match; and what `TableWriter.upsert`
    raises.
    """
    statement = statement_of(text)
    changed = changed_rows(ctx, statement)
    if changed is not None:
        count = pa.array([changed.run(ctx, parameters)], pa.uint64())
        return ctx.read_batch(pa.record_batch([count], names=["count"]))
    if statement.keyword(0) in _QUERIES:
        return frame(ctx, statement.slice(0, len(statement)), parameters)
    with planning_errors():
        return ctx.sql(text, param_values=parameters)
