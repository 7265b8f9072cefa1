"""SET, SHOW and RESET of what this package adds to a session."""

from weakref import WeakKeyDictionary

import datafusion
import pyarrow as pa

from memwal_sql.errors import UnsupportedError
from memwal_sql.statements.queries.tokens import Statement
from memwal_sql.write.statement import SNAPSHOT, check_isolation

_NAME = ("memwal", "isolation")
_CATALOG, _SCHEMA = "datafusion", "public"
_DEFAULTS = ("datafusion.catalog.default_catalog", "datafusion.catalog.default_schema")
_sessions: WeakKeyDictionary[datafusion.SessionContext, str] = WeakKeyDictionary()


def isolation(ctx: datafusion.SessionContext) -> str:
    """How statements that change rows are isolated."""
    return _sessions.get(ctx, SNAPSHOT)


def check_catalog(ctx: datafusion.SessionContext) -> None:
    """Raise UnsupportedError for a session in which names without a catalog stand for others than
    here."""
    if _CATALOG not in ctx.catalog_names() or _SCHEMA not in ctx.catalog(_CATALOG).names():
        raise UnsupportedError(
            f"names without a catalog and a schema are those of '{_CATALOG}.{_SCHEMA}' here, and "
            "this session has none: make it without another default catalog or schema, and say both"
        )


def show_variable(ctx: datafusion.SessionContext, statement: Statement) -> pa.Table | None:
    """The answer of `SHOW memwal.isolation`, as DataFusion gives it of its own; None for others."""
    if not _is_ours(statement):
        return None
    return pa.table({"name": [".".join(_NAME)], "value": [isolation(ctx)]})


def reset_variable(ctx: datafusion.SessionContext, statement: Statement) -> bool:
    """Run `RESET memwal.isolation`; whether it is that."""
    if not _is_ours(statement):
        return False
    _sessions.pop(ctx, None)
    return True


def _is_ours(statement: Statement) -> bool:
    return (
        len(statement) > 1
        and statement.tokens[1].is_name
        and statement.table(1) == (_NAME, len(statement))
    )


def set_variable(ctx: datafusion.SessionContext, statement: Statement) -> bool:
    """Run `SET memwal.isolation = 'serializable'`, or `'snapshot'`; whether it is that.

    Raises InvalidCallError for another value, or another name of ours, and UnsupportedError for the
    catalog and schema that names without one stand for.
    """
    if len(statement) == 1 or not statement.tokens[1].is_name:
        return False
    if statement.has(1, "TRANSACTION") or statement.has(1, "SESSION CHARACTERISTICS"):
        message = "SET memwal.isolation = 'serializable' says how statements are isolated"
        raise UnsupportedError(str(statement.error(message, 1)))
    name, place = statement.table(1)
    if ".".join(name) in _DEFAULTS:
        raise UnsupportedError(
            str(statement.error("names alone are those of datafusion.public: say the catalog", 1))
        )
    if name[0] != _NAME[0]:
        return False
    if name != _NAME:
        raise statement.error(f"there is {'.'.join(_NAME)} to be set", 1)
    if statement.symbol(place) != "=" and statement.keyword(place) != "TO":
        raise statement.error("`= value` must follow", place)
    if len(statement) != place + 2:
        raise statement.error("one value must follow", place + 1)
    value = statement.tokens[place + 1].value.lower()
    check_isolation(value)
    _sessions[ctx] = value
    return True
