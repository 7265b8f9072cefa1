"""Checks of clauses that DataFusion would answer wrongly, and of repeated names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from memwal_native.syntax import SqlQuery
from memwal_sql.errors import InvalidCallError, UnsupportedError


def check_memberships(misread: Sequence[str]) -> None:
    """Raise UnsupportedError for an IN that DataFusion 55 computes otherwise than SQL says."""
    if misread:
        raise UnsupportedError(
            f"DataFusion would ignore NULLs of the subquery in {misread[0]!r}: write "
            "x = ANY (SELECT ...) for IN, and x <> ALL (SELECT ...) for NOT IN"
        )


def check_faults(query: SqlQuery, *, merges_piecewise: bool) -> None:
    """Raise UnsupportedError for clauses that DataFusion 55 ignores or answers wrongly, and for a
    query of tables in a session whose joins may lose rows."""
    if merges_piecewise and query.tables:
        raise UnsupportedError(
            "piecewise merge joins lose rows: set "
            "datafusion.optimizer.enable_piecewise_merge_join to false"
        )
    if query.refused:
        raise UnsupportedError(query.refused[0])


def check_names_differ(names: Sequence[str]) -> None:
    """Raise InvalidCallError for repeated names."""
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InvalidCallError(
            f"the result has several columns with the names {repeated}: give each a name of its "
            "own with AS"
        )
