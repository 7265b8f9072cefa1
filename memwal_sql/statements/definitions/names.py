"""The names of tables in definitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import datafusion

from memwal_native.syntax import Reference
from memwal_sql.arguments import quoted
from memwal_sql.errors import UnsupportedError
from memwal_sql.session.registered import NAME_PARTS, Registered, whole_name
from memwal_sql.session.session import session_of
from memwal_sql.statements.queries.parsed import Statement
from memwal_sql.statements.queries.places import Name
from memwal_sql.statements.queries.planning import check_names, check_table
from memwal_sql.table import Table


def registered(ctx: datafusion.SessionContext, parts: Name) -> Registered | None:
    """The MemWAL table that the session has under a name, if any. Raises UnsupportedError where the
    session does not fold names to lower case."""
    if len(parts) > NAME_PARTS:
        return None
    registration = session_of(ctx).registered(whole_name(parts), ctx)
    if registration is not None:
        check_names(ctx)
    return registration


def is_known(ctx: datafusion.SessionContext, parts: Name) -> bool:
    """Whether a session has a table with a name."""
    return _missing(ctx, parts) is None and ctx.table_exist(written(parts))


def check_place(ctx: datafusion.SessionContext, statement: Statement, name: Reference) -> None:
    """Raise InvalidCallError, with the place, where a session can't have a table with a name."""
    if (missing := _missing(ctx, tuple(name.parts))) is not None:
        raise statement.error(missing, name.start)


def _missing(ctx: datafusion.SessionContext, parts: Name) -> str | None:
    """The error for a name whose catalog or schema does not exist, or None."""
    if len(parts) > NAME_PARTS:
        return "the name of a table has at most three parts"
    catalog, schema, _ = whole_name(parts)
    if catalog not in (catalogs := ctx.catalog_names()):
        return f"the session has no catalog {catalog!r}; it has {sorted(catalogs)}"
    if schema not in (schemas := ctx.catalog(catalog).names()):
        return f"the catalog {catalog!r} has no schema {schema!r}; it has {sorted(schemas)}"
    return None


def refuse_schema(
    ctx: datafusion.SessionContext, statement: Statement, parts: Sequence[str], at: int, kept: bool
) -> None:
    """Raise UnsupportedError, with the place, for a `catalog.schema` in a catalog of folders,
    unless `kept` is true and it exists."""
    schemas = session_of(ctx).schemas(parts[0]) if len(parts) > 1 else []
    if schemas and not (kept and parts[1] in schemas):
        message = (
            f"a catalog of a folder has only the schema {schemas[0]!r}: mw.catalog(ctx, place, "
            "name) shows another folder"
        )
        raise statement.unsupported(message, at)


def not_ours(
    ctx: datafusion.SessionContext, statement: Statement, name: Reference
) -> UnsupportedError:
    """The error, with the place, for a table that is not a MemWAL table, in a statement that
    DataFusion does not have. Raises InvalidCallError if there is no table of this name."""
    check_table(ctx, name.text)
    message = "this is not a MemWAL table; this statement changes only those"
    return statement.unsupported(message, name.start)


def table_of(registration: Registered) -> Table:
    """The registered handle."""
    return cast(Table, registration.table)


def written(parts: Sequence[str]) -> str:
    """A name quoted for SQL."""
    return ".".join(map(quoted, parts))
