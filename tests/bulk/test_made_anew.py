"""Rows that were staged for a table that is another one, or divided otherwise, by the commit."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.bulk.rows import RowForm
from memwal_sql.bulk.stage import StagedTask, StageLimits
from memwal_sql.table import Table
from tests.each import each

ROWS = {"id": [1, 2, 3], "a": ["a"] * 3, "b": ["b"] * 3}
NOW = [{"id": 1, "b": "now", "a": "now"}]
LIMITS = [StageLimits(), StageLimits(inline=0), StageLimits(generation=1)]
Write = Callable[[Table, list[StagedTask]], Any]


def publish(table: Table, tasks: list[StagedTask]) -> None:
    table.publisher().publish(tasks)


def overwrite(table: Table, tasks: list[StagedTask]) -> None:
    table.replace_staged(tasks)


def create(uri: Path, names: str, buckets: int) -> Table:
    schema = pa.schema([("id", pa.int64()), *((name, pa.string()) for name in names)])
    return mw.create_table(uri, schema, "id", [mw.bucket("id", buckets)])


def stage(table: Table, limits: StageLimits, *, replaces: bool = False) -> StagedTask:
    stager = table.stager("job", RowForm(), limits, replaces=replaces)
    return pickle.loads(pickle.dumps(stager.stage(pa.table(ROWS).to_batches())))


@each("limits", LIMITS)
@each("write", [publish, overwrite])
def test_rows_of_a_dropped_table_do_not_land_in_its_successor(
    tmp_path: Path, limits: StageLimits, write: Write
) -> None:
    """Its columns may have the ids of others, and its regions other values."""
    place = tmp_path / "t"
    staged = stage(create(place, "ab", 3), limits, replaces=write is overwrite)
    mw.drop_table(place)
    table = create(place, "ba", 5)
    with table.writer() as writer:
        writer.upsert(NOW)
    with pytest.raises(mw.ReopenError, match=r"made anew .* run the job again"):
        write(table, [staged])
    assert mw.open_table(place).to_arrow().to_pylist() == NOW
    write(table, [stage(table, limits, replaces=write is overwrite)])
    assert mw.open_table(place).to_arrow().num_rows == 3


def test_rows_that_another_spec_divided_are_staged_again(tmp_path: Path) -> None:
    table = create(tmp_path / "t", "ab", 3)
    staged = stage(table, StageLimits())
    other = replace(staged, spec_id=2)
    with pytest.raises(mw.ReopenError, match=r"region spec .* run the job again"):
        publish(table, [other])
    assert mw.open_table(tmp_path / "t").to_arrow().num_rows == 0
    overwrite(table, [other])  # its rows are in no region
    publish(table, [StagedTask(())])
    assert mw.open_table(tmp_path / "t").to_arrow().num_rows == 3
