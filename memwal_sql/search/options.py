"""The options of searches: keyword arguments of the table's methods, the last struct in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from memwal_sql.arguments import is_number, is_whole
from memwal_sql.errors import InvalidCallError

DEFAULT_K = 10
VECTOR_OPTIONS = (
    "metric",
    "nprobes",
    "refine_factor",
    "ef",
    "exact",
    "lower_bound",
    "upper_bound",
)
TEXT_OPTIONS = (
    "operator",
    "boost",
    "fuzziness",
    "max_expansions",
    "prefix_length",
    "minimum_should_match",
)
FUSION_OPTIONS = ("candidates", "vector_weight", "text_weight", "rrf_k")
_MOST_ROWS = 2**40

_FUSION_NUMBERS = ("vector_weight", "text_weight", "rrf_k")


def checked_options(given: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """The options that are not None.

    Raises InvalidCallError for unknown names, and for values of another type where the planner
    does not look at them.
    """
    known = tuple(known)
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InvalidCallError(f"unknown options {unknown}; there are {list(known)}")
    found = {name: value for name, value in given.items() if value is not None}
    for name, value in found.items():
        if name == "candidates" and not is_whole(value, least=1):
            raise InvalidCallError(f"{name}={value!r} must be a whole number, 1 or more")
        if name in _FUSION_NUMBERS and not is_number(value):
            raise InvalidCallError(f"{name}={value!r} must be a number")
        if name == "exact" and not isinstance(value, bool):
            raise InvalidCallError(f"exact={value!r} must be true or false")
    return found


def checked_k(k: Any) -> int:
    """How many rows are asked for, at most as many as a table can have. Raises InvalidCallError
    unless it is a number of rows."""
    if not is_whole(k, least=1):
        raise InvalidCallError(f"k={k!r} must be a whole number of rows, 1 or more")
    return min(int(k), _MOST_ROWS)
