"""SET, SHOW and RESET of what this package adds to a session."""

import datafusion
import pyarrow as pa

from memwal_native.syntax import Variable
from memwal_sql.errors import UnsupportedError
from memwal_sql.session.table_functions import search_functions
from memwal_sql.statements.queries.parsed import Statement
from memwal_sql.write.statement import SNAPSHOT, check_isolation

_NAME = ("memwal", "isolation")
_CATALOG, _SCHEMA = "datafusion", "public"
_DIALECT = "datafusion.sql_parser.dialect"
_DEFAULTS = ("datafusion.catalog.default_catalog", "datafusion.catalog.default_schema")


def isolation(ctx: datafusion.SessionContext) -> str:
    """How statements that change rows are isolated."""
    return search_functions(ctx).isolation


def check_catalog(ctx: datafusion.SessionContext) -> None:
    """Raise UnsupportedError for a session in which names without a catalog stand for others than
    here."""
    if _CATALOG not in ctx.catalog_names() or _SCHEMA not in ctx.catalog(_CATALOG).names():
        raise UnsupportedError(
            f"names without a catalog and a schema are those of '{_CATALOG}.{_SCHEMA}' here, and "
            "this session has none: make it without another default catalog or schema, and say both"
        )


def run_variable(
    ctx: datafusion.SessionContext, statement: Statement, variable: Variable
) -> pa.Table | None:
    """Run SET, SHOW or RESET of a variable of this package; None for others.

    Raises InvalidCallError for another value, or another name of ours, and UnsupportedError for the
    catalog and schema that names without one stand for.
    """
    name, at = tuple(variable.name.parts), variable.name.start
    if statement.sql.word == "SET" and ".".join(name) in _DEFAULTS:
        message = "names alone are those of datafusion.public: say the catalog"
        raise statement.unsupported(message, at)
    if statement.sql.word == "SET" and ".".join(name) == _DIALECT:
        raise statement.unsupported("statements are read in DataFusion's default dialect", at)
    if name[0] != _NAME[0]:
        return None
    if name != _NAME:
        raise statement.error(f"there is {'.'.join(_NAME)} to be set", at)
    if statement.sql.word == "SHOW":
        return pa.table({"name": [".".join(_NAME)], "value": [isolation(ctx)]})
    if statement.sql.word == "RESET":
        search_functions(ctx).isolation = SNAPSHOT
        return pa.table({})
    level = (variable.value or "").lower()
    check_isolation(level)
    search_functions(ctx).isolation = level
    return pa.table({})
