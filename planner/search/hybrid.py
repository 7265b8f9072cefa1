"""The plan of a hybrid search: a vector search and a full-text search, fused by rank."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from exec_nodes.base.errors import InvalidCallError
from exec_nodes.fuse_exec import RELEVANCE, FuseExec
from exec_nodes.global_limit_exec import GlobalLimitExec
from exec_nodes.sort_exec import SortExec
from exec_nodes.take_exec import TakeExec
from planner.model import Snapshot
from planner.predicates.condition import Condition
from planner.search.full_text import TextQuery, plan_full_text_search, text_indexes
from planner.search.sources import bridged
from planner.search.vector import VectorQuery, plan_vector_search, vector_index

RRF_CONSTANT = 60.0
# Ranks beyond the best few of each search still decide which rows both of them know.
CANDIDATES_PER_ROW = 4


@dataclass(frozen=True, slots=True)
class HybridQuery:
    """The `k` rows that do best in two rankings together.

    Attributes:
        vector, text: the searches; their own `k`, columns and filters do not count.
        columns: the columns to return besides `_distance`, `_score` and `_relevance_score`.
        filters: conjunctive, prefilters of both searches.
        candidates: how many rows of each ranking are fused; four times `k` if None.
        vector_weight, text_weight: the weight of each ranking.
        constant: added to ranks; the higher it is, the less the first ranks stand out.
        whole: return every row of the two rankings, so that the caller can choose.
    """

    vector: VectorQuery
    text: TextQuery
    k: int
    columns: tuple[str, ...]
    filters: tuple[Condition, ...] = ()
    candidates: int | None = None
    vector_weight: float = 1.0
    text_weight: float = 1.0
    constant: float = RRF_CONSTANT
    whole: bool = False


def plan_hybrid_search(query: HybridQuery, snapshot: Snapshot) -> TakeExec:
    """The `k` live rows that match all filters with the highest fused scores, best first;
    `columns`, `_distance` and `_score` (null where that search does not know the row), and
    `_relevance_score` (float32).

    A row is known to a search if it is among its `candidates` best. Raises InvalidCallError for
    several query vectors, for weights that are negative or all 0, and as the two searches do.
    """
    _check(query)
    # The two sides' rows are matched by source, so both have to read the same sources.
    index = vector_index(query.vector.column, query.vector.metric, snapshot.indexes)
    snapshot = bridged(snapshot, index, *text_indexes(query.text, snapshot).values())
    candidates = CANDIDATES_PER_ROW * query.k if query.candidates is None else query.candidates
    k = max(query.k, candidates)
    vector = plan_vector_search(
        replace(query.vector, k=k, columns=(), filters=query.filters), snapshot
    )
    text = plan_full_text_search(
        replace(query.text, k=k, columns=query.columns, filters=query.filters), snapshot
    )
    fused = FuseExec(
        (vector.child, text.child), (query.vector_weight, query.text_weight), query.constant
    )
    most = 2 * k if query.whole else query.k
    best = GlobalLimitExec(
        SortExec(fused, RELEVANCE, text.sources, snapshot.info.key_schema, most, descending=True),
        most,
    )
    node = TakeExec(best, text.sources, text.output)
    node.metrics.add(regions_pruned=text.metrics["regions_pruned"])
    return node


def _check(query: HybridQuery) -> None:
    if query.vector.queries > 1:
        raise InvalidCallError(
            f"a hybrid search is for one query vector, not {query.vector.queries}"
        )
    weights = (query.vector_weight, query.text_weight)
    if not all(0 <= weight < math.inf for weight in weights) or not any(weights):
        raise InvalidCallError(
            f"vector_weight={weights[0]} and text_weight={weights[1]} must be finite, 0 or more, "
            "and not both 0"
        )
    if not 0 <= query.constant < math.inf:
        raise InvalidCallError(f"rrf_k={query.constant} must be finite, 0 or more")
