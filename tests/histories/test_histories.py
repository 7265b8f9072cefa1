"""Random histories with every key type and every region spec (issue "What must be shown").

One history of each key type, by which each region spec is played too; `MEMWAL_SOAK=10` plays ten
histories of every combination, and `MEMWAL_SEED=...` chooses other combinations and histories. A
failure prints the seed of its history and its steps; the same seed repeats it.
"""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import Executor
from itertools import groupby
from pathlib import Path
from zlib import crc32

import pytest

from tests.histories.history import History
from tests.histories.statements import StatementHistory
from tests.model.kinds import (
    COMBINATIONS,
    KINDS_BY_NAME,
    REGIONS_BY_NAME,
    KeyKind,
    RegionKind,
)
from tests.soak import SOAK

SEED = os.environ.get("MEMWAL_SEED", "1")
FIRST = crc32(SEED.encode()) % 4


def one_of_each_type() -> list[tuple[KeyKind, RegionKind]]:
    """Each key type with one region spec: of those played least so far, the rarest."""
    rarity = Counter(regions.name for _, regions in COMBINATIONS)
    times = Counter[str]()
    pairs: list[tuple[KeyKind, RegionKind]] = []
    for _, group in groupby(COMBINATIONS, lambda pair: pair[0]):
        choice = list(group)
        turned = choice[FIRST % len(choice) :] + choice[: FIRST % len(choice)]
        pairs.append(min(turned, key=lambda pair: (times[pair[1].name], rarity[pair[1].name])))
        times[pairs[-1][1].name] += 1
    return pairs


PLAYED = COMBINATIONS if SOAK > 1 else one_of_each_type()
ROUTED = [(kind, regions) for kind, regions in COMBINATIONS if not regions.is_manual]
STATEMENTS = ROUTED if SOAK > 1 else ROUTED[FIRST::32]
STEPS = 5 if SOAK > 1 else 2
QUESTIONS = 4 if SOAK > 1 else 2


def test_the_sample_has_each_key_type_and_each_region_spec() -> None:
    assert {kind.name for kind, _ in PLAYED} == set(KINDS_BY_NAME)
    assert {regions.name for _, regions in PLAYED} == set(REGIONS_BY_NAME)


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
