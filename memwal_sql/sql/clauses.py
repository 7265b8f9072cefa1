"""Clauses that DataFusion's parser knows and its planner leaves out, which changes the answer."""

from __future__ import annotations

from memwal_native import ignored_clauses
from memwal_sql.errors import UnsupportedError


def check_clauses(query: str) -> None:
    """Raise UnsupportedError for a statement of which DataFusion, in its default dialect, would
    leave out a part, as TABLESAMPLE."""
    ignored = ignored_clauses(query)
    if ignored:
        raise UnsupportedError(
            f"DataFusion would answer as if {ignored} did not stand in the statement: leave it out"
        )
