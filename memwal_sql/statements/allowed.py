"""The kinds of statements that `mw.sql` may run, by DataFusion's SQLOptions."""

from __future__ import annotations

from collections.abc import Collection

import datafusion

from memwal_sql.errors import UnsupportedError

ALL = frozenset({"DDL", "DML", "statements"})
# SQLOptions do not say what they allow: each kind is probed by a statement that changes nothing.
_PROBES = {
    "DDL": "DROP VIEW IF EXISTS nothing",
    "DML": "EXPLAIN INSERT INTO nothing VALUES (1)",
    "statements": "SET datafusion.execution.batch_size = 8192",
}
# First word after a WITH clause -> kind.
_KINDS = {
    **dict.fromkeys(("DELETE", "UPDATE", "TRUNCATE", "MERGE", "INSERT", "REPLACE", "COPY"), "DML"),
    **dict.fromkeys(("CREATE", "ALTER", "DROP"), "DDL"),
    **dict.fromkeys(
        (
            *("CALL", "SET", "RESET", "PREPARE", "EXECUTE", "DEALLOCATE"),
            *("BEGIN", "START", "COMMIT", "END", "ROLLBACK"),
        ),
        "statements",
    ),
}


def allowed_by(options: datafusion.SQLOptions) -> Collection[str]:
    """The kinds of statements, besides queries, that these options allow."""
    session = datafusion.SessionContext()
    session.sql("CREATE TABLE nothing (a BIGINT)")
    return frozenset(kind for kind in ALL if _allows(session, options, _PROBES[kind]))


def _allows(session: datafusion.SessionContext, options: datafusion.SQLOptions, probe: str) -> bool:
    try:
        session.sql(probe, options)
    except Exception as error:  # DataFusion raises nothing more specific
        if "not supported" not in str(error):
            raise
        return False
    return True


def options_of(allowed: Collection[str]) -> datafusion.SQLOptions:
    """Options for DataFusion's own statements that allow these kinds. DML is never allowed, as
    DataFusion does not read it as SQL says."""
    options = datafusion.SQLOptions().with_allow_dml(False)
    options = options.with_allow_ddl("DDL" in allowed)
    return options.with_allow_statements("statements" in allowed)


def check_allowed(word: str, allowed: Collection[str]) -> None:
    """Raise UnsupportedError unless statements that begin with a word are allowed."""
    kind = _KINDS.get(word)
    if kind is not None and kind not in allowed:
        raise UnsupportedError(f"the options of this call do not allow {kind}, such as {word}")


# Options for COPY, which writes the rows of a query to files.
FILES = datafusion.SQLOptions().with_allow_ddl(False).with_allow_statements(False)
