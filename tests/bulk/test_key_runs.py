"""Pieces whose keys have runs of hashes of their own are published without a look at the keys, and
keys are looked at some at a time."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.bulk import winners as of_winners
from memwal_sql.bulk.key_runs import HASHES, runs_of, sharing, short_hashes, spans_of
from memwal_sql.bulk.read import StagedReader
from memwal_sql.bulk.rows import RowForm
from memwal_sql.bulk.stage import StagedTask, StageLimits
from memwal_sql.bulk.winners import KeyLimits
from memwal_sql.errors import InvalidCallError
from memwal_sql.table import Table
from tests.soak import SOAK

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})
SMALL, LARGE = StageLimits(), StageLimits(generation=1)


def stage(table: Table, ids: Any, val: str, limits: StageLimits, at: int | None = None) -> Any:
    columns = {"id": pa.array(ids, pa.int64()), "val": [val] * len(ids)}
    if at is not None:
        columns["at"] = [at] * len(ids)
    form = RowForm() if at is None else RowForm(order_by="at")
    stager = table.stager(f"job-{val}", form, limits)
    return stager.stage(pa.table(columns).to_batches())


def numbers(ids: Any) -> Any:
    return short_hashes([pa.array(ids, pa.int64())])


def test_pieces_of_two_groups_have_no_hash_in_common() -> None:
    rng = random.Random(7)
    for _ in range(30 * SOAK):
        width = rng.choice([1, 3, 40])
        pieces = [rng.sample(range(5000), rng.choice([1, 2, width])) for _ in range(12)]
        found = [runs_of([pa.array(ids, pa.int64())]) for ids in pieces]
        groups = sharing([*found, ()] if rng.random() < 0.2 else found)
        assert sorted(place for group in groups for place in group) == list(range(12)) or (
            groups == [list(range(13))]
        )
        hashes = [
            {int(n) for place in group if place < 12 for n in numbers(pieces[place])}
            for group in groups
        ]
        assert sum(map(len, hashes)) == len(set().union(*hashes))
    assert [len(spans_of(parts)) for parts in (1, 7, 10**6)] == [1, 7, HASHES]
    assert {end - first for first, end in spans_of(10**6)} == {1}


@pytest.mark.parametrize("limits", [SMALL, LARGE])
def test_keys_of_shuffled_tasks_are_not_read(tmp_path: Path, limits: StageLimits) -> None:
    table = mw.create_table(tmp_path / "table", SCHEMA, "id", [mw.bucket("id", 2)])
    ids = np.arange(3000)
    part = numbers(ids) * 4 // HASHES
    tasks = [stage(table, ids[part == n], str(n), limits) for n in range(4)]

    def unread(self: Any, *args: Any, **options: Any) -> Any:
        raise AssertionError("keys were read")

    with patch.object(StagedReader, "keys", unread):
        table.publisher().publish(tasks)
    rows = table.scan(["id", "val"]).read_all().to_pylist()
    assert {row["id"]: row["val"] for row in rows} == dict(
        zip(ids.tolist(), map(str, part.tolist()), strict=True)
    )


def test_a_key_of_two_tasks_is_found_wherever_it_is(tmp_path: Path) -> None:
    """Runs come from the keys, so that rows in a wrong partition show."""
    table = mw.create_table(tmp_path / "table", SCHEMA, "id", [mw.bucket("id", 2)])
    ids = np.arange(3000)
    part = numbers(ids) * 4 // HASHES
    for stray in (0, 17, 2999):
        tasks = [
            stage(table, np.union1d(ids[part == n], [stray]), "x", limits)
            for n, limits in enumerate((SMALL, LARGE, SMALL, LARGE))
        ]
        with KeyLimits.set(keys=300), pytest.raises(InvalidCallError, match="two tasks have a row"):
            table.publisher().publish(tasks)


@pytest.mark.parametrize("limits", [SMALL, LARGE])
def test_keys_are_compared_some_at_a_time(tmp_path: Path, limits: StageLimits) -> None:
    table = mw.create_table(tmp_path / "table", SCHEMA, "id", [mw.bucket("id", 2)])
    rng, expected = random.Random(3), dict[int, str]()
    tasks: list[StagedTask] = []
    for task in range(5):
        ids = rng.sample(range(400), 120)
        tasks.append(stage(table, ids, str(task), limits, at=task))
        expected |= dict.fromkeys(ids, str(task))
    rng.shuffle(tasks)
    most, winners = [], of_winners.winners

    def noted(pieces: Any, *args: Any) -> Any:
        most.append(sum(piece.table.num_rows for piece in pieces))
        return winners(pieces, *args)

    with KeyLimits.set(keys=50), patch.object(of_winners, "winners", noted):
        table.publisher().publish(tasks)
    assert max(most) < 100
    assert len(most) > 10
    rows = table.scan(["id", "val"]).read_all().to_pylist()
    assert {row["id"]: row["val"] for row in rows} == expected
