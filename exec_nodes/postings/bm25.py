"""BM25 as Lance scores it: k1 = 1.2, b = 0.75, in 32-bit floats.

Every source of a search computes scores with these functions, or with a kernel that gives the same
bits, and with the statistics of the whole corpus, so that scores are comparable.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from exec_nodes.postings.protocol import CorpusStatistics, Frequencies, Lengths

K1 = 1.2
B = 0.75

Scores = npt.NDArray[np.float32]


def inverse_document_frequency(documents: int, holding: int) -> np.float32:
    """`ln(1 + (N - df + 0.5) / (df + 0.5))`, of a token that `holding` of `documents` hold."""
    return np.float32(math.log1p((documents - holding + 0.5) / (holding + 0.5)))


def token_weight(statistics: CorpusStatistics, token: str) -> np.float32:
    """The inverse document frequency of a token in a corpus."""
    holding = statistics.document_frequency(token)
    return inverse_document_frequency(statistics.documents, holding)


def length_norms(statistics: CorpusStatistics) -> tuple[np.float32, np.float32]:
    """The (fixed, per token) parts of a document's `k1 (1 - b + b length / average length)`."""
    return norms_of(statistics.documents, statistics.total_length)


def norms_of(documents: int, total_length: float) -> tuple[np.float32, np.float32]:
    """As `length_norms`, for documents with this many tokens altogether."""
    if not total_length:
        return np.float32(K1), np.float32(0)
    average = total_length / documents
    return np.float32(K1 * (1 - B)), np.float32(K1 * B / average)


def token_scores(
    frequencies: Frequencies | Scores,
    lengths: Lengths | Scores,
    weight: np.float32,
    norms: tuple[np.float32, np.float32],
) -> Scores:
    """The score that one token of a query adds to documents: `weight (k1 + 1) f / (f + norm)`.

    `lengths[i]` is the length of the document that holds the token `frequencies[i]` times.
    """
    fixed, per_token = norms
    often = frequencies.astype(np.float32)
    norm = fixed + per_token * lengths.astype(np.float32)
    scores = weight * (np.float32(K1 + 1) * often / (often + norm))
    return scores.astype(np.float32, copy=False)
