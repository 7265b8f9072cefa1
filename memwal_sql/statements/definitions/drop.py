"""DROP TABLE: removes a table from a session; a catalog also deletes it."""

from __future__ import annotations

import datafusion
import pyarrow as pa

from memwal_native.syntax import Named
from memwal_sql.drop import drop_table
from memwal_sql.registration import METADATA_TABLES, deregister
from memwal_sql.session.registered import NAME_PARTS, whole_name
from memwal_sql.session.session import session_of
from memwal_sql.statements.definitions.names import (
    is_known,
    refuse_schema,
    registered,
    table_of,
    written,
)
from memwal_sql.statements.queries.parsed import Statement
from memwal_sql.statements.queries.planning import answer
from memwal_sql.storage.objects.open import refuse_linked_root


def run_drop(
    ctx: datafusion.SessionContext, statement: Statement, named: Named
) -> datafusion.DataFrame | None:
    """Run `DROP TABLE [IF EXISTS] t` for a MemWAL table; None for another table.

    A table of a catalog is deleted with its files, after the writers of this process are stopped. A
    registered table is deregistered, and its files stay.
    """
    parts, at = tuple(named.name.parts), named.name.start
    if named.kind == "SCHEMA":
        refuse_schema(ctx, statement, parts, at, kept=False)
    if named.kind != "TABLE":
        return None
    of, dollar, about = parts[-1].rpartition("$")
    if dollar and about in METADATA_TABLES and registered(ctx, (*parts[:-1], of)) is not None:
        raise statement.unsupported(f"this describes the table {of}, and is dropped with it", at)
    folder = session_of(ctx).folder(whole_name(parts)) if len(parts) <= NAME_PARTS else None
    registration = registered(ctx, parts)
    if folder is None and registration is None:
        return None
    if named.rest is not None:
        raise statement.error("DROP TABLE takes the name of one table only", named.rest)
    if folder is None:
        deregister(ctx, written(parts))
        return answer(ctx, pa.table({}))
    if not is_known(ctx, parts):
        if named.lenient:
            return answer(ctx, pa.table({}))
        raise statement.error("the catalog has no table of this name", at)
    if registration is None and folder.mounted(parts[-1]) is None:
        place = folder.location(parts[-1])
        raise statement.error(f"{place} contains no table: delete the folder", at)
    if registration is None:
        message = "this is a plain Lance table: mw.drop_table deletes it"
        raise statement.unsupported(message, at)
    refuse_linked_root(folder.location(parts[-1]))
    table_of(registration).close()
    folder.forget(parts[-1])
    drop_table(folder.location(parts[-1]), folder.storage_options)
    return answer(ctx, pa.table({}))
