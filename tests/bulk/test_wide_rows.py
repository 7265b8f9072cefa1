"""Batches of few columns over rows whose other columns are large."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import memwal_sql as mw
from memwal_sql.bulk.read import LogLimits
from memwal_sql.bulk.rows import RowForm
from memwal_sql.bulk.stage import StagedTask, StageLimits
from memwal_sql.bulk.stored import StoredLimits
from memwal_sql.state.batch_marks import BatchMark
from memwal_sql.table import Table
from tests.each import each
from tests.model.writing import merge_rows

ROWS, DOC = 300, "x" * 2_000
SCHEMA = pa.schema([("id", pa.int64()), ("flag", pa.int64()), ("doc", pa.string())])
KEEP = RowForm(missing="keep")


def wide(uri: Path) -> Table:
    table = mw.create_table(uri, SCHEMA, "id", [mw.bucket("id", 3)])
    merge_rows(table, {"id": list(range(ROWS)), "flag": [0] * ROWS, "doc": [DOC] * ROWS})
    return table


def generations(table: Table) -> int:
    """So many were made in all regions."""
    return sum(mw.open_table(table.uri).regions()["current_generation"].to_pylist())


def stage(table: Table, keys: range, form: RowForm = KEEP) -> list[StagedTask]:
    rows = pa.table({"id": list(keys), "flag": [1] * len(keys)})
    return [table.stager("job", form, StageLimits()).stage(rows.to_batches())]


@each("mark", [None, BatchMark("q", 0)])
def test_rows_that_are_large_once_they_are_filled_become_generations(
    tmp_path: Path, mark: BatchMark | None
) -> None:
    """They need not fit into one WAL entry each."""
    table = wide(tmp_path / "t")
    keys = range(ROWS - 10, ROWS + 100)
    before = generations(table)
    with LogLimits.set(nbytes=100_000):
        assert table.publisher().publish(stage(table, range(20)), mark).rows == 20
        assert generations(table) == before
        later = None if mark is None else BatchMark("q", 1)
        assert table.publisher().publish(stage(table, range(ROWS)), later).rows == ROWS
        again = table.publisher().publish(stage(table, range(ROWS)), later)
        assert again.rows == (ROWS if mark is None else 0)
    assert generations(table) >= before + 3
    table.publisher().publish(stage(table, keys))
    found = {row["id"]: row for row in mw.open_table(table.uri).to_arrow().to_pylist()}
    assert found == {
        key: {"id": key, "flag": 1, "doc": DOC if key < ROWS else None} for key in range(ROWS + 100)
    }


def test_lookups_are_cut_by_the_bytes_of_the_rows(tmp_path: Path) -> None:
    """So that the driver holds a bounded number of them."""
    table = wide(tmp_path / "t")
    publisher, asked = table.publisher(), list[int]()
    get = publisher._get

    def counted(keys: pa.Table, columns: Any) -> pa.Table:
        asked.append(keys.num_rows)
        return get(keys, columns)

    for form in (KEEP, RowForm(missing="keep", when="t.doc IS NOT NULL")):
        asked.clear()
        with (
            patch.object(publisher, "_get", counted),
            StoredLimits.set(first=10, nbytes=40_000),
            LogLimits.set(nbytes=100_000),
        ):
            publisher.publish(stage(table, range(ROWS), form))
        assert max(asked) < 25, form
    assert set(mw.open_table(table.uri).to_arrow()["flag"].to_pylist()) == {1}
