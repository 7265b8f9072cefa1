"""The options of searches, as callers write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypedDict

import pyarrow as pa

DEFAULT_K = 10

Rerank: TypeAlias = Callable[[pa.Table], Any]
"""Takes the candidates and returns an array of their scores, one a row: the higher, the better."""


class VectorOptions(TypedDict, total=False):
    """How a vector search is done; see `Table.vector_search`. None means the same as leaving an
    option out."""

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
    plain: bool | None


class HybridOptions(VectorOptions, TextOptions, total=False):
    """How both are done and fused; see `Table.hybrid_search`."""

    candidates: int | None
    vector_weight: float | None
    text_weight: float | None
    rrf_k: float | None
