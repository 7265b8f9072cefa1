"""A table as Arrow data: for pyarrow, pandas and whatever takes the Arrow PyCapsule interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datafusion
import duckdb
import pandas as pd
import polars
import pyarrow as pa
import pytest

import memwal_sql as mw

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})


@pytest.fixture
def table(tmp_path: Path) -> mw.Table:
    """Rows in the base table, a generation and memory, some of them replaced and deleted."""
    table = mw.create_table(tmp_path / "t", SCHEMA, "id", [mw.bucket("id", 2)])
    with table.writer() as writer:
        writer.upsert({"id": range(10), "val": [f"base {i}" for i in range(10)]})
        writer.flush()
        table.merge()
        writer.upsert({"id": [1, 2, 20], "val": ["flushed"] * 3})
        writer.flush()
        writer.upsert({"id": [2, 30], "val": ["memory"] * 2})
        writer.delete([3])
    return table


EXPECTED = {i: f"base {i}" for i in (0, 4, 5, 6, 7, 8, 9)} | {
    1: "flushed",
    20: "flushed",
    2: "memory",
    30: "memory",
}


def content(rows: Any) -> dict[int, str]:
    found = pa.table(rows)
    assert found.schema.names == SCHEMA.names
    return dict(zip(found["id"].to_pylist(), found["val"].to_pylist(), strict=True))


def add(table: mw.Table, key: int) -> None:
    with table.writer() as writer:
        writer.upsert({"id": [key], "val": ["new"]})


def test_a_table_exports_a_stream_as_often_as_it_is_asked_each_of_its_own_moment(
    table: mw.Table,
) -> None:
    first = pa.RecordBatchReader.from_stream(table)
    assert first.schema.equals(table.schema)
    second = pa.RecordBatchReader.from_stream(table)
    assert content(second.read_all()) == EXPECTED
    add(table, 40)
    assert content(pa.table(table)) == {**EXPECTED, 40: "new"}
    assert content(first.read_all()) == EXPECTED, "what had begun goes on as it was"


def test_a_stream_is_cast_to_the_schema_that_is_asked_for(table: mw.Table) -> None:
    wanted = pa.schema({"id": pa.int64(), "val": pa.large_string()})
    found = pa.RecordBatchReader.from_stream(table, schema=wanted).read_all()
    assert found.schema == wanted
    assert content(found) == EXPECTED


def test_frames_and_tables_are_what_a_scan_gives(table: mw.Table) -> None:
    assert content(table.to_arrow()) == EXPECTED
    frame = table.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert dict(zip(frame["id"], frame["val"], strict=True)) == EXPECTED
    some = table.to_arrow(columns=["val"], filter="id > 8", limit=2)
    assert some.schema.names == ["val"]
    assert some.num_rows == 2
    assert table.to_pandas(["id"], "val = 'memory'")["id"].sort_values().tolist() == [2, 30]
    assert content(table.to_arrow(consistency="manifest"))[2] == "flushed"


@pytest.mark.parametrize(
    ("condition", "count"),
    [(None, 11), ("id > 5", 6), ("val = 'memory'", 2), ("id IN (1, 3)", 1), ("1 = 0", 0)],
)
def test_rows_are_counted(table: mw.Table, condition: str | None, count: int) -> None:
    assert table.count_rows(condition) == count
    assert table.count_rows(condition) == table.to_arrow(filter=condition).num_rows
    assert table.count_rows("id = 30", consistency="manifest") == 0


def test_an_older_version_is_exported_as_it_was(table: mw.Table) -> None:
    table.checkpoint("before")
    add(table, 40)
    old = mw.open_table(table.uri, checkpoint="before")
    assert content(old) == EXPECTED
    assert old.count_rows() == len(EXPECTED)


def test_a_table_can_be_written_into_another(table: mw.Table, tmp_path: Path) -> None:
    other = mw.create_table(tmp_path / "other", SCHEMA, "id")
    with other.writer() as writer:
        assert writer.upsert(table).rows == len(EXPECTED)
        assert content(other) == EXPECTED
        writer.delete(table)
    assert other.count_rows() == 0


def test_datafusion_takes_it_as_data_too(table: mw.Table) -> None:
    context = datafusion.SessionContext()
    assert context.from_arrow(table).count() == len(EXPECTED)


def test_polars_and_duckdb_take_it_as_it_is(table: mw.Table) -> None:
    assert content(polars.DataFrame(table).to_arrow()) == EXPECTED
    assert content(table.to_polars().to_arrow()) == EXPECTED
    ducks = duckdb.connect()
    ducks.register("events", table)
    for _ in range(2):
        query = "SELECT count(*), max(id) FROM events"
        assert ducks.sql(query).fetchall() == [(len(EXPECTED), 30)]
    with table.writer() as writer:
        lazy = table.to_polars().lazy().filter(polars.col("id") < 5)
        writer.delete(lazy)
        writer.upsert(polars.LazyFrame({"id": [1], "val": ["lazy"]}))
        writer.upsert(duckdb.sql("SELECT 2::BIGINT AS id, 'duck' AS val"))
    rest = {key: val for key, val in EXPECTED.items() if key >= 5}
    assert content(table) == {**rest, 1: "lazy", 2: "duck"}
