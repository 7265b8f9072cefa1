"""Which keys a staged piece may have: runs of hashes, by which pieces are known to share no key
without a look at their keys.

Who stages rows computes them from the keys themselves, so that nobody has to be believed. Tasks
whose rows were shuffled by region and by hash have runs of their own; other tasks have all hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from exec_nodes.keys.hashing import hash_columns
from exec_nodes.keys.keys import KeyColumn

HASHES = 4096
_SHIFT = np.uint64(64 - 12)
# More would be long in a task's message; a run over all of them is as right.
_MOST_RUNS = 4

Runs = tuple[tuple[int, int], ...]
"""The first hash of each run, and the one after its last; without any all hashes."""


def short_hashes(keys: Sequence[KeyColumn]) -> npt.NDArray[np.int64]:
    """A number below `HASHES` for each row of the key columns, in their exact types."""
    return (hash_columns(keys) >> _SHIFT).astype(np.int64)


def runs_of(keys: Sequence[KeyColumn]) -> Runs:
    """The runs that the hashes of keys lie in."""
    present = np.bincount(short_hashes(keys), minlength=HASHES) > 0
    edges = np.flatnonzero(np.diff(present, prepend=False, append=False)).tolist()
    if len(edges) > 2 * _MOST_RUNS:
        edges = [edges[0], edges[-1]]
    return tuple(zip(edges[::2], edges[1::2], strict=True))


def sharing(runs: Sequence[Runs]) -> list[list[int]]:
    """The places of pieces with these runs, in groups, each in order: pieces of two groups have no
    key in common."""
    parents = list(range(len(runs)))

    def root(place: int) -> int:
        while parents[place] != place:
            parents[place] = parents[parents[place]]
            place = parents[place]
        return place

    spans = [(*run, place) for place, some in enumerate(runs) for run in some or ((0, HASHES),)]
    before, until = 0, 0
    for first, end, place in sorted(spans):
        if first < until:
            parents[root(place)] = root(before)
        before, until = place, max(until, end)
    groups: dict[int, list[int]] = {}
    for place in range(len(runs)):
        groups.setdefault(root(place), []).append(place)
    return list(groups.values())


def spans_of(parts: int) -> list[tuple[int, int]]:
    """All hashes in so many spans of about the same length, at most one for each."""
    bounds = np.linspace(0, HASHES, min(parts, HASHES) + 1).astype(int).tolist()
    return list(pairwise(bounds))
