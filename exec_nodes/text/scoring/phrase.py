"""Phrases: whether a text holds tokens in order, near enough to each other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from exec_nodes.text.postings.protocol import Documents, TextIndex
from exec_nodes.text.scoring.matches import Flags

Spellings = frozenset[str]


def holding_phrase(
    index: TextIndex,
    documents: Documents,
    words: Sequence[Spellings],
    places: Sequence[int],
    slop: int,
) -> Flags:
    """One flag a document: whether its text has each of `words` (any of its spellings), each at
    least as far behind the one before as `places` says, and at most `slop` farther.

    The texts are read and tokenized: give the documents that hold all the words.
    """
    steps = [after - before for before, after in pairwise(places)]
    texts = index.texts(documents).to_pylist()
    matches = [_holds(index.positions(text), words, steps, slop) for text in texts]
    return np.array(matches, np.bool_)


def _holds(
    tokens: Sequence[tuple[str, int]], words: Sequence[Spellings], steps: Sequence[int], slop: int
) -> bool:
    found: list[list[int]] = [
        [place for token, place in tokens if token in spellings] for spellings in words
    ]
    ends = found[0]
    for step, candidates in zip(steps, found[1:], strict=True):
        ends = [place for place in candidates if _reached(place - step, ends, slop)]
    return bool(ends)


def _reached(place: int, ends: Sequence[int], slop: int) -> bool:
    """Whether some end lies at the place or at most `slop` before it."""
    behind = bisect_right(ends, place)
    return behind > 0 and ends[behind - 1] >= place - slop
