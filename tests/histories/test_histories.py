"""Random histories with every key type and every region spec (issue "What must be shown").

`MEMWAL_SOAK=10` plays ten times as many; `MEMWAL_SEED=...` changes all of them. A failure prints
the seed of its history and its steps; the same seed repeats it.
"""

from __future__ import annotations

import os
from concurrent.futures import Executor
from pathlib import Path

import pytest

from tests.histories.history import History
from tests.histories.statements import StatementHistory
from tests.model.kinds import COMBINATIONS, KeyKind, RegionKind

SOAK = max(1, int(os.environ.get("MEMWAL_SOAK", "1")))
SEED = os.environ.get("MEMWAL_SEED", "1")
# Every second one: each key with some of the region specs, each spec with some of the keys.
PLAYED = COMBINATIONS if SOAK > 1 else COMBINATIONS[::2]
ROUTED = [(kind, regions) for kind, regions in COMBINATIONS if not regions.is_manual]
STATEMENTS = ROUTED if SOAK > 1 else ROUTED[1::8]
STEPS = 5
QUESTIONS = 4


@pytest.mark.parametrize(("kind", "regions"), PLAYED, ids=[f"{k.name}-{r.name}" for k, r in PLAYED])
def test_every_read_equals_the_oracle_after_every_step(
    kind: KeyKind, regions: RegionKind, fast_folder: Path
) -> None:
    for number in range(SOAK):
        seed = f"{SEED}/{kind.name}/{regions.name}/{number}"
        History(seed, kind, regions, str(fast_folder / f"table{number}")).run(STEPS, QUESTIONS)


@pytest.mark.parametrize(
    ("kind", "regions"), STATEMENTS, ids=[f"{k.name}-{r.name}" for k, r in STATEMENTS]
)
def test_statements_change_what_the_oracle_changes(
    kind: KeyKind, regions: RegionKind, fast_folder: Path, other: Executor
) -> None:
    for number in range(SOAK):
        seed = f"{SEED}/statements/{kind.name}/{regions.name}/{number}"
        uri = str(fast_folder / f"table{number}")
        StatementHistory(seed, kind, regions, uri, other).run(STEPS + 1, 1)
