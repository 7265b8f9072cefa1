"""A writer process killed anywhere: every acknowledged durable row is there, and no
unacknowledged batch is half there (issue "What must be shown"; protocol rules 3 to 9)."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

import memwal_sql as mw
from tests.crash.doomed import Death
from tests.crash.killing import copy_of, deaths_at_calls, moments, run_to_death, told_by
from tests.crash.script import State, Write, base_state, read, writes
from tests.crash.writing_child import write_until_death
from tests.soak import SOAK

COUNT = 14
OPTIONS: dict[str, Any] = {"memtable_rows": 12}
SEED = 7


def _states(seed: int) -> list[State]:
    """The state after every write, the first before all of them."""
    found = [base_state()]
    for write in writes(seed, COUNT):
        found.append(write.apply(found[-1]))
    return found


def _examine(uri: str, seed: int, acknowledged: int) -> None:
    """Read as a stranger, then claim, write and flush: the rows stay what they were."""
    states = _states(seed)
    allowed = states[acknowledged : acknowledged + 2]
    table = mw.open_table(uri)
    found = read(table)
    assert found in allowed, f"{acknowledged} writes were acknowledged: {found} not in {allowed}"
    with table.writer(**OPTIONS) as writer:
        last = Write(99, "upsert", (0, 1))
        writer.upsert(last.rows())
        expected = last.apply(found)
        assert read(table) == expected
        writer.flush()
        assert read(table) == expected
    assert read(mw.open_table(uri)) == expected


def _kill_and_examine(context: Any, template: Path, folder: Path, seed: int, death: Death) -> bool:
    with copy_of(template, folder) as uri:
        told, survived = run_to_death(context, write_until_death, uri, seed, COUNT, OPTIONS, death)
        with told_by(f"seed {seed}, {death}"):
            _examine(uri, seed, acknowledged=told[-1] if told else 0)
    return survived


@pytest.mark.parametrize(("where", "when"), moments("store", "remote"))
def test_killed_at_a_call(
    context: Any, template: Path, tmp_path: Path, where: str, when: str
) -> None:
    def kill(death: Death) -> bool:
        return _kill_and_examine(context, template, tmp_path, SEED, death)

    nth = deaths_at_calls(kill, where, when, stride=9)
    assert nth > 5, f"only {nth} calls to {where} were seen"


def test_killed_during_a_lance_call(context: Any, template: Path, tmp_path: Path) -> None:
    rng = Random(SEED)
    for _ in range(20 * SOAK if SOAK > 1 else 1):
        death = Death("lance", rng.randint(1, 8), "during", rng.uniform(0, 0.008))
        _kill_and_examine(context, template, tmp_path, rng.randrange(1000), death)


def test_killed_at_random_times(context: Any, template: Path, tmp_path: Path) -> None:
    rng = Random(SEED + 1)
    for _ in range(30 * SOAK if SOAK > 1 else 2):
        death = Death("time", seconds=rng.uniform(0, 0.15))
        _kill_and_examine(context, template, tmp_path, rng.randrange(1000), death)
