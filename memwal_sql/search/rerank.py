"""Reranking: the candidates of a search, in the order of scores that a caller's function gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.arrow.large_columns import taken
from exec_nodes.base.columns import QUERY_INDEX_FIELD
from exec_nodes.fuse_exec import RELEVANCE, RELEVANCE_FIELD
from memwal_sql.arguments import shortened
from memwal_sql.errors import InvalidCallError
from memwal_sql.search.options import Rerank
from memwal_sql.search.request import Search, checked_count
from planner.search.hybrid import CANDIDATES_PER_ROW


def candidate_count(k: int, rerank: Rerank | None, candidates: int | None) -> int:
    """How many rows a search without fusion ranks. Raises InvalidCallError for wrong numbers."""
    if rerank is None:
        if candidates is not None:
            raise InvalidCallError(
                f"candidates={candidates!r} is the number of rows that rerank= scores: give both, "
                "or neither"
            )
        return k
    rows = checked_count(k)
    if candidates is None:
        return CANDIDATES_PER_ROW * rows
    return max(rows, checked_count(candidates, "candidates"))


def check_rerank(rerank: Rerank, search: Search) -> None:
    """Raise InvalidCallError unless `rerank` can score the results of a search."""
    if not callable(rerank):
        raise InvalidCallError(
            f"rerank={shortened(repr(rerank))} must be a function that takes a pyarrow.Table and "
            "returns a score for each row"
        )
    if QUERY_INDEX_FIELD in search.added:
        raise InvalidCallError("rerank= is for one query vector: search for one at a time")


def reranked(rows: pa.Table, rerank: Rerank, k: int) -> pa.Table:
    """The `k` rows with the highest scores, best first, equal ones as they were, with the scores as
    `_relevance_score` (float32); without rows `rerank` is not called.

    Raises InvalidCallError unless it returns a finite number for each row.
    """
    scores = _scores(rerank(rows), len(rows)) if len(rows) else np.empty(0)
    # Reversed, as unsigned integers and the least signed one can't be negated.
    ascending = np.argsort(scores[::-1], kind="stable")
    order = (len(rows) - 1 - ascending[::-1])[:k]
    best, column = taken(rows, order), pa.array(scores[order].astype(np.float32))
    if RELEVANCE in rows.column_names:
        return best.set_column(rows.schema.get_field_index(RELEVANCE), RELEVANCE_FIELD, column)
    return best.append_column(RELEVANCE_FIELD, column)


def _scores(result: Any, rows: int) -> npt.NDArray[Any]:
    try:
        numbers = np.asarray(result)
        with np.errstate(over="ignore"):
            rounded = numbers.astype(np.float32)
    except (ValueError, TypeError) as error:
        raise _no_scores(result, rows) from error
    if numbers.dtype.kind not in "biuf" or rounded.shape != (rows,):
        raise _no_scores(result, rows)
    wrong = np.flatnonzero(~np.isfinite(rounded))
    if len(wrong):
        raise InvalidCallError(
            f"rerank returned {numbers[wrong[0]]} for row {wrong[0]}: a score is a finite float32"
        )
    return numbers


def _no_scores(result: Any, rows: int) -> InvalidCallError:
    return InvalidCallError(
        f"rerank returned {shortened(repr(result))} for {rows} rows: it must return an array of "
        f"{rows} numbers, a score for each row"
    )
