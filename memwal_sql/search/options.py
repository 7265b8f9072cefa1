"""The options of searches: keyword arguments of the table's methods, the last struct in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict

from memwal_sql.arguments import is_number, is_whole
from memwal_sql.errors import InvalidCallError

DEFAULT_K = 10


class VectorOptions(TypedDict, total=False):
    """How a vector search is done; see `Table.vector_search`. None is as good as left out."""

    metric: Literal["l2", "cosine", "dot", "hamming"] | None
    nprobes: int | None
    refine_factor: int | None
    ef: int | None
    exact: bool | None
    lower_bound: float | None
    upper_bound: float | None


class TextOptions(TypedDict, total=False):
    """How a query of words is taken; see `Table.full_text_search`."""

    operator: Literal["OR", "AND"] | None
    boost: float | None
    fuzziness: int | None
    max_expansions: int | None
    prefix_length: int | None
    minimum_should_match: int | None


class HybridOptions(VectorOptions, TextOptions, total=False):
    """How both are done and fused; see `Table.hybrid_search`."""

    candidates: int | None
    vector_weight: float | None
    text_weight: float | None
    rrf_k: float | None


VECTOR_OPTIONS = tuple(VectorOptions.__annotations__)
TEXT_OPTIONS = tuple(TextOptions.__annotations__)
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
