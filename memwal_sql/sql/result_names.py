"""Names of a result's columns: SQL lets them repeat, Spark and JSON don't."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from memwal_sql.errors import InvalidCallError


def check_names_differ(names: Sequence[str]) -> None:
    """Raise InvalidCallError that names those that repeat."""
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InvalidCallError(
            f"the result has several columns of the names {repeated}: give each a name of its own "
            "with AS"
        )
