"""The kinds of indexes, and their parameters as callers write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict, get_args

import numpy.typing as npt

VectorKind = Literal[
    "IVF_FLAT",
    "IVF_PQ",
    "IVF_SQ",
    "IVF_RQ",
    "IVF_HNSW_FLAT",
    "IVF_HNSW_PQ",
    "IVF_HNSW_SQ",
]
VECTOR_KINDS = get_args(VectorKind)


class IvfParameters(TypedDict, total=False):
    """The parameters of every vector index. None stands for a parameter that is left out, here and
    below."""

    metric: Literal["l2", "cosine", "dot", "hamming", "euclidean"] | None
    num_partitions: int | None
    target_partition_size: int | None
    sample_rate: int | None
    ivf_centroids: npt.ArrayLike | None


class RqParameters(TypedDict, total=False):
    """Further parameters of `IVF_RQ`."""

    num_bits: int | None


class PqParameters(RqParameters, total=False):
    """Further parameters of `IVF_PQ` and `IVF_HNSW_PQ`."""

    num_sub_vectors: int | None
    pq_codebook: npt.ArrayLike | None


class HnswParameters(TypedDict, total=False):
    """Further parameters of the `HNSW` kinds."""

    m: int | None
    ef_construction: int | None
    max_level: int | None


class VectorParameters(IvfParameters, PqParameters, HnswParameters, total=False):
    """The parameters of all vector indexes; the kind decides which of them it takes."""


TextKind = Literal["FTS", "INVERTED"]
TEXT_KINDS = get_args(TextKind)


class AnalyzerParameters(TypedDict, total=False):
    """How texts become words. None is Lance's default; for `max_token_length` it is any length."""

    analyzer: str | None
    base_tokenizer: str | None
    language: str | None
    max_token_length: int | None
    lower_case: bool | None
    stem: bool | None
    remove_stop_words: bool | None
    custom_stop_words: Sequence[str] | None
    ascii_folding: bool | None
    min_ngram_length: int | None
    max_ngram_length: int | None
    prefix_only: bool | None
    split_identifiers: bool | None
    split_on_numerics: bool | None
    preserve_original: bool | None
    index_operators: bool | None


class TextParameters(AnalyzerParameters, total=False):
    """The parameters of full-text indexes."""

    with_position: bool | None
    memory_limit: int | None
    num_workers: int | None


class IndexParameters(VectorParameters, TextParameters, total=False):
    """The parameters of indexes of any kind, as arguments of `Table.create_index`."""


# For filters of scans over the base table alone: a generation is small, and reading it takes less
# time than an index of its own would save.
ScalarKind = Literal["BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER"]
SCALAR_KINDS = get_args(ScalarKind)
IndexKind = VectorKind | TextKind | ScalarKind
KINDS = (*VECTOR_KINDS, *TEXT_KINDS, *SCALAR_KINDS)
