"""SET, SHOW and RESET of the settings that this package adds to a session."""

import re
from typing import cast

import datafusion
import pyarrow as pa

from memwal_native.syntax import Variable
from memwal_sql.errors import UnsupportedError
from memwal_sql.session.session import PREFERRED, REQUIRED, session_of
from memwal_sql.statements.queries.parsed import Statement
from memwal_sql.storage.records.transactions import MOST_SHOWN
from memwal_sql.transaction.handle import OpenTransaction
from memwal_sql.write.statement import SNAPSHOT, Isolation, check_isolation

_ISOLATION, _ACTOR, _ATOMIC = "memwal.isolation", "memwal.actor", "memwal.atomic"
_TIMEOUT = "memwal.timeout"
_NO_TIMEOUT = (
    "there is no time limit, as joins of DataFusion do not end before they are done: run the query "
    "in a process of its own, and end that"
)
_CATALOG, _SCHEMA = "datafusion", "public"
_DIALECT = "datafusion.sql_parser.dialect"
_SET = re.compile(r"SET\s+memwal\s*\.", re.IGNORECASE)
_DEFAULTS = ("datafusion.catalog.default_catalog", "datafusion.catalog.default_schema")


def check_catalog(ctx: datafusion.SessionContext) -> None:
    """Raise UnsupportedError for a session with another default catalog or schema than here."""
    if _CATALOG not in ctx.catalog_names() or _SCHEMA not in ctx.catalog(_CATALOG).names():
        raise UnsupportedError(
            f"names without a catalog and a schema mean '{_CATALOG}.{_SCHEMA}' here, which this "
            "session does not have: create it with the default catalog and schema"
        )


def run_variable(
    ctx: datafusion.SessionContext, statement: Statement, variable: Variable
) -> pa.Table | None:
    """Run SET, SHOW or RESET of a variable of this package; None for others.

    Raises InvalidCallError for an invalid value or name, and UnsupportedError for the default
    catalog and schema.
    """
    name, at = tuple(variable.name.parts), variable.name.start
    if statement.sql.word == "SET" and ".".join(name) in _DEFAULTS:
        message = "names without a catalog mean datafusion.public: write the catalog"
        raise statement.unsupported(message, at)
    if statement.sql.word == "SET" and ".".join(name) == _DIALECT:
        raise statement.unsupported("statements are read in DataFusion's default dialect", at)
    if name[0] != "memwal":
        return None
    setting, session = ".".join(name), session_of(ctx)
    if setting == _TIMEOUT:
        raise statement.unsupported(_NO_TIMEOUT, at)
    if setting not in (_ISOLATION, _ACTOR, _ATOMIC):
        raise statement.error(f"the settings are {_ISOLATION}, {_ACTOR} and {_ATOMIC}", at)
    if statement.sql.word == "SHOW":
        within = cast(OpenTransaction | None, session.slot.open)
        isolation = session.isolation if within is None else within.isolation
        values = {_ISOLATION: isolation, _ACTOR: session.actor, _ATOMIC: session.atomic}
        value = values[setting]
        return pa.table({"name": [setting], "value": pa.array([value], pa.string())})
    if session.slot.open is not None:
        message = f"{setting} is that of the open transaction until COMMIT or ROLLBACK"
        raise statement.unsupported(message, at)
    if setting == _ACTOR and len(variable.value or "") > MOST_SHOWN:
        raise statement.error(f"{_ACTOR} has at most {MOST_SHOWN:,} characters", at)
    if setting == _ACTOR:
        session.actor = variable.value if statement.sql.word == "SET" else None
    elif setting == _ATOMIC:
        value = (variable.value or "").lower() if statement.sql.word == "SET" else PREFERRED
        if value not in (PREFERRED, REQUIRED):
            raise statement.error(f"{_ATOMIC} is '{PREFERRED}' or '{REQUIRED}'", at)
        session.atomic = value
    elif statement.sql.word == "RESET":
        session.isolation = SNAPSHOT
    else:
        level = (variable.value or "").lower()
        check_isolation(level)
        session.isolation = cast(Isolation, level)
    return pa.table({})


def check_setting(statement: Statement) -> None:
    """Raise InvalidCallError for SET of a variable of this package in a form that is not read."""
    part = statement.sql.part
    if statement.sql.word == "SET" and _SET.match(part.text):
        message = f"write the value as a word or in quotes: SET {_ACTOR} = 'loader'"
        raise statement.error(message, part.start)
