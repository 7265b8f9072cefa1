"""A handle travels to workers as how it was opened; a writer does not."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import memwal_sql as mw
from tests.model.process import forks

SCHEMA = pa.schema([pa.field("id", pa.int64(), False)])
COPIES: dict[str, Callable[[mw.Table], mw.Table]] = {
    **{
        f"pickle {protocol}": lambda table, p=protocol: pickle.loads(pickle.dumps(table, p))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    },
    "cloudpickle": lambda table: pickle.loads(cloudpickle.dumps(table)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def upsert(table: mw.Table, key: int) -> None:
    with table.writer() as writer:
        writer.upsert([{"id": key}])
        writer.flush()


def count(table: mw.Table) -> int:
    return table.count_rows()


def test_a_table_pickles_as_how_it_was_opened(tmp_path: Path) -> None:
    """Of the past it reads the past, of the present what was written since."""
    made = mw.create_table(tmp_path / "t", SCHEMA, "id")
    uri = made.uri
    upsert(made, 1)
    version = made.snapshot_regions()
    made.tags.create("release", version)
    now = datetime.now(UTC)
    upsert(made, 2)
    made.checkpoint("monday")
    upsert(made, 3)
    handles: list[tuple[mw.Table, int]] = [
        (made, 4),
        (mw.open_table(uri), 4),
        (mw.open_table(uri, version=version), 1),
        (made.as_of("release"), 1),
        (mw.open_table(uri, timestamp=now.isoformat()), 1),
        (made.as_of(timestamp=now), 1),
        (made.as_of("monday"), 2),
        (mw.open_table(uri, checkpoint="monday"), 2),
    ]
    travelled = [(name, c(handle), n) for handle, n in handles for name, c in COPIES.items()]
    upsert(made, 4)
    for name, table, rows in travelled:
        assert table.count_rows() == rows, name
        assert (table.uri, table.newest_of) == (uri, made.newest_of if rows == 4 else None), name


def test_a_table_works_in_other_processes(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    upsert(table, 1)
    with forks().Pool(1) as pool:
        assert pool.map(count, [table, table.as_of(table.snapshot_regions())]) == [1, 1]


def test_storage_options_travel_along(tmp_path: Path) -> None:
    options = {"timeout": "7s"}
    table = mw.create_table(tmp_path / "t", SCHEMA, "id", storage_options=options)
    for name, travel in COPIES.items():
        assert travel(table).opened_with["storage_options"] == options, name


def test_a_writer_says_what_to_pickle_instead(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    with table.writer() as writer:
        for name, travel in COPIES.items():
            with pytest.raises(mw.InvalidCallError, match=r"pickle the table, and open"):
                travel(writer)  # type: ignore[arg-type]
                pytest.fail(name)
        writer.upsert([{"id": 1}])
    assert table.count_rows() == 1
