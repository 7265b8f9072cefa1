"""Random histories with every key type and every region spec (issue "What must be shown").

`MEMWAL_SOAK=10` plays ten times as many; `MEMWAL_SEED=...` changes all of them. A failure prints
the seed of its history and its steps; the same seed repeats it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.histories.history import History
from tests.model.kinds import COMBINATIONS, KeyKind, RegionKind

SOAK = max(1, int(os.environ.get("MEMWAL_SOAK", "1")))
SEED = os.environ.get("MEMWAL_SEED", "1")
HISTORIES = len(COMBINATIONS) * SOAK
STEPS = 5
QUESTIONS = 4


@pytest.fixture
def fast_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: histories test meaning, not the disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="memwal-history-", dir=memory))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _share(index: int) -> int:
    """How many of all histories the combination at `index` plays."""
    return HISTORIES // len(COMBINATIONS) + (index < HISTORIES % len(COMBINATIONS))


@pytest.mark.parametrize(
    ("kind", "regions", "count"),
    [(kind, regions, _share(index)) for index, (kind, regions) in enumerate(COMBINATIONS)],
    ids=[f"{k.name}-{r.name}" for k, r in COMBINATIONS],
)
def test_every_read_equals_the_oracle_after_every_step(
    kind: KeyKind, regions: RegionKind, count: int, fast_folder: Path
) -> None:
    for number in range(count):
        seed = f"{SEED}/{kind.name}/{regions.name}/{number}"
        History(seed, kind, regions, str(fast_folder / f"table{number}")).run(STEPS, QUESTIONS)
