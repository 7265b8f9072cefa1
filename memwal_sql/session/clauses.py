"""What DataFusion takes and a statement must not have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from memwal_native import SqlText
from memwal_sql.arguments import check_comparisons
from memwal_sql.errors import InvalidCallError, UnsupportedError


def check_clauses(query: SqlText) -> None:
    """Raise UnsupportedError for a statement of which DataFusion would leave out a part, as
    TABLESAMPLE, or which it would read otherwise than SQL says."""
    check_comparisons(query)
    if ignored := query.ignored_clauses():
        raise UnsupportedError(
            f"DataFusion would answer as if {ignored} did not stand in the statement: leave it out"
        )


def check_memberships(query: SqlText) -> None:
    """Raise UnsupportedError for a membership that DataFusion 55 computes otherwise than SQL says.
    Those of a statement that changes rows would choose too many."""
    if misread := query.misread_memberships():
        raise UnsupportedError(
            f"DataFusion would forget NULLs of the subquery in {misread[0]!r}: write "
            "x <> ALL (SELECT ...), or NOT EXISTS"
        )


def check_names_differ(names: Sequence[str]) -> None:
    """Raise InvalidCallError that names those that repeat."""
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InvalidCallError(
            f"the result has several columns of the names {repeated}: give each a name of its own "
            "with AS"
        )
