"""How much of what is random, or of a large table of cases, a run of the tests tries.

`MEMWAL_SOAK=10`, as `make soak` sets it, tries ten times as much, and all cases.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

SOAK = max(1, int(os.environ.get("MEMWAL_SOAK", "1")))
IS_SOAK = SOAK > 1

T = TypeVar("T")


def usual(cases: Sequence[T], count: int) -> list[T]:
    """All cases in a soak; else `count` of them, spread evenly, with the first and the last."""
    if IS_SOAK or count >= len(cases):
        return list(cases)
    return [cases[index * (len(cases) - 1) // max(1, count - 1)] for index in range(count)]


def in_turns(cases: Sequence[T], turn: int, turns: int) -> list[T]:
    """All cases in a soak; else those of one of so many turns, which have each case once together:
    for a test of all pairs, which tries each case of both lists and not each pair."""
    return list(cases) if IS_SOAK else list(cases[turn % turns :: turns])
