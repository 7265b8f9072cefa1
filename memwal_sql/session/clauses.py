"""Checks of what DataFusion would answer wrongly or twice under one name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from memwal_sql.errors import InvalidCallError, UnsupportedError


def check_memberships(misread: Sequence[str]) -> None:
    """Raise UnsupportedError for a membership that DataFusion 55 computes otherwise than SQL says.
    Those of a statement that changes rows would choose too many."""
    if misread:
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
