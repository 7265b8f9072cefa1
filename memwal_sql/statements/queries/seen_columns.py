"""Checks that a table still has the columns it was registered with."""

from __future__ import annotations

from collections.abc import Callable

import datafusion
import pyarrow as pa

from exec_nodes.evolution.differences import with_ids
from memwal_sql.errors import MemWalError, ReopenError, RetryError
from memwal_sql.session.provider import other_columns
from memwal_sql.session.registered import Registered, TableName
from memwal_sql.session.session import session_of

# Makes the error of a statement whose table has these columns by now.
ColumnsChanged = Callable[[pa.Schema], MemWalError]


def check_columns(ctx: datafusion.SessionContext, registration: Registered) -> None:
    """Raise ReopenError if a table is known to have other columns than the session sees, so that
    its rows can't be written."""
    now = registration.table.schema
    if not now.equals(registration.columns) or not registration.has_columns:
        inside = session_of(ctx).slot.open is not None
        then = with_ids(registration.columns, registration.field_ids)
        now = with_ids(now, registration.table.field_ids)
        raise other_columns(registration.name, then, now, inside=inside)


def check_known(ctx: datafusion.SessionContext, registration: Registered) -> None:
    """The same for reading it, which needs the columns that the session sees and no others."""
    if not registration.has_columns:
        check_columns(ctx, registration)


def columns_changed(
    ctx: datafusion.SessionContext, name: TableName, then: pa.Schema, now: pa.Schema
) -> MemWalError:
    """The error of a statement that was made for the columns `then`: a RetryError if the session
    sees other columns meanwhile, as the statement works with those when it runs again."""
    session = session_of(ctx)
    registration = session.registered(name, ctx)
    if registration is None:
        return ReopenError(f"{'.'.join(name)} was taken out of the session: register it again")
    if registration.mounted is not None and registration.columns.equals(then):
        return other_columns(registration.name, then, now, inside=session.slot.open is not None)
    return RetryError(
        "the columns of the table have just changed: nothing was written, run the statement again"
    )
