"""The vectors that a search is for, from whatever a caller has them in."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_sql.errors import InvalidCallError

_SHOWN = 80


def query_vectors(value: Any) -> npt.NDArray[Any]:
    """(queries, dimension): one vector, or several as the rows of a matrix or a list of lists.

    Raises InvalidCallError for what holds no numbers, and for nulls.
    """
    found = value
    if isinstance(found, pa.ChunkedArray | pa.Array):
        found = found.to_pylist()
    elif isinstance(found, pa.Scalar):
        found = found.as_py()
    if isinstance(found, bytes):
        found = np.frombuffer(found, np.uint8)
    null = None
    try:
        numbers = np.asarray(found)
        if numbers.dtype.kind == "O":  # nulls, decimals, or lists of different lengths
            null = _first_null(numbers)
            numbers = np.asarray(found, np.float64)
    except (ValueError, TypeError) as error:
        raise _unusable(value) from error
    if null is not None:
        raise InvalidCallError(f"{null} is null: a vector to search for has a number everywhere")
    if numbers.dtype.kind not in "iuf" or numbers.ndim not in (1, 2) or not numbers.size:
        raise _unusable(value)
    return np.atleast_2d(numbers)


def _first_null(elements: npt.NDArray[np.object_]) -> str | None:
    """Where the first null is among the elements of one query or several."""
    for place, element in np.ndenumerate(elements):
        if element is None and place:
            query = f"query {place[0]}" if len(place) > 1 else "the query"
            return f"element {place[-1]} of {query}"
    return None


def _unusable(value: Any) -> InvalidCallError:
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    return InvalidCallError(
        f"the query {shown} is no vector: give a list of numbers, or a list of such lists for "
        "several queries at once"
    )
