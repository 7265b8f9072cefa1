"""A merger killed anywhere: nothing is lost, nothing is there twice, and another one finishes
(issue "What must be shown"; protocol rules 19 and 20)."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import lance
import pytest

import memwal_sql as mw
from tests.crash.doomed import Death
from tests.crash.killing import copy_of, deaths_at_calls, moments, run_to_death, told_by
from tests.crash.merging_child import merge_until_death
from tests.maintain.merging_tables import (
    SCHEMA,
    expected,
    in_base,
    rows_of,
    write_generations,
)
from tests.soak import SOAK

SEED = 11
TIMES = 12 * SOAK if SOAK > 1 else 1
# Of two regions: first generations of some passes each, then deletes in passes of both, and then
# the newest ones of both in one commit.
PASS_BYTES = 12_000
FIRST = [(dict.fromkeys(range(100), 0), [])]
REST = [
    (dict.fromkeys(range(2600), 1), []),
    (dict.fromkeys(range(0, 2600, 7), 2), [1, 8, 99]),
    (dict.fromkeys(range(0, 100, 3), 3), []),
]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table to copy, with generations to merge and a record of the regions older than they."""
    folder = tmp_path_factory.mktemp("template")
    table = mw.create_table(folder / "t", SCHEMA, "id", regions=[mw.bucket("id", 2)])
    write_generations(table, FIRST)
    table.merge()
    write_generations(table, REST)
    return folder / "t"


def _examine(uri: str, first: int) -> None:
    """Read every version since `first` and every level, then finish the work."""
    states = [expected([*FIRST, *REST][:n]) for n in (1, 2, 3, 4)]
    rows, regions = states[-1], _keys_of_regions(uri)
    for consistency in ("strong", "manifest"):
        assert rows_of(mw.open_table(uri), consistency) == rows
    _check_regions(regions, states, rows_of(mw.open_table(uri), "eventual"))
    for version in range(first, lance.dataset(uri).version + 1):
        with told_by(f"version {version}"):
            _check_regions(regions, states, rows_of(mw.open_table(uri, version=version)))
    table = mw.open_table(uri)
    table.merge()
    table.build_indexes()
    assert in_base(uri) == rows
    table.compact()
    assert in_base(uri) == rows_of(mw.open_table(uri)) == rows
    assert rows_of(table, "eventual") == rows


def _keys_of_regions(uri: str) -> list[set[int]]:
    regions = [one for one in Path(uri).glob("_mem_wal/*") if one.is_dir()]
    assert len(regions) == 2
    return [
        {
            key
            for folder in region.glob("*_gen_*")
            for key in lance.dataset(folder).to_table(columns=["id"])["id"].to_pylist()
        }
        for region in regions
    ]


def _check_regions(
    regions: list[set[int]], states: list[dict[int, int]], found: dict[int, int]
) -> None:
    """The rows of each region are in one of its states, whichever the other one is in."""
    for keys in regions:
        of_region = [{k: v for k, v in state.items() if k in keys} for state in states]
        assert {k: v for k, v in found.items() if k in keys} in of_region


def _kill_and_examine(context: Any, template: Path, folder: Path, death: Death) -> bool:
    with copy_of(template, folder) as uri:
        first = lance.dataset(uri).version
        _, survived = run_to_death(context, merge_until_death, uri, PASS_BYTES, death)
        with told_by(str(death)):
            _examine(uri, first)
    return survived


@pytest.mark.parametrize(("where", "when"), moments("store"))
def test_killed_at_a_call(
    context: Any, template: Path, tmp_path: Path, where: str, when: str
) -> None:
    def kill(death: Death) -> bool:
        return _kill_and_examine(context, template, tmp_path, death)

    nth = deaths_at_calls(kill, where, when, stride=20)
    assert nth > 8, f"only {nth} calls to {where} were seen"


def test_killed_during_a_lance_call(context: Any, template: Path, tmp_path: Path) -> None:
    rng = Random(SEED)
    for _ in range(TIMES):
        death = Death("lance", rng.randint(1, 48), "during", rng.uniform(0, 0.006))
        _kill_and_examine(context, template, tmp_path, death)


def test_killed_at_random_times(context: Any, template: Path, tmp_path: Path) -> None:
    rng = Random(SEED + 1)
    for _ in range(TIMES):
        _kill_and_examine(context, template, tmp_path, Death("time", seconds=rng.uniform(0, 0.2)))
