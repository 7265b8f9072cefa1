"""Columns that are scanned again are kept, and are the rows that Lance gives."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import lance
import pyarrow as pa
import pytest

from exec_nodes.sources.cache import ByteCache
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.sources.source import ROW_ADDRESS
from planner.model import TableInfo

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})
ROWS = 10_000


@pytest.fixture
def cache() -> ByteCache:
    return ByteCache()


@pytest.fixture
def source(tmp_path: Path, cache: ByteCache) -> LanceSource:
    table = pa.table({"id": range(ROWS), "val": [f"v{i}" for i in range(ROWS)]}, SCHEMA)
    dataset = lance.write_dataset(table, tmp_path / "t", max_rows_per_file=3_000)
    return LanceSource.base(dataset, TableInfo(SCHEMA, ("id",), ()), etag="1", cache=cache)


def scanned(source: LanceSource, columns: list[str]) -> list[tuple[object, ...]]:
    parts = [source.scan(columns, (), None, part) for part in range(source.parts)]
    batches = [batch for part in parts for batch in part]
    for batch in batches:
        assert batch.schema.names == [*columns, ROW_ADDRESS]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_the_third_scan_of_columns_reads_nothing(source: LanceSource) -> None:
    first = scanned(source, ["id", "val"])
    assert len(first) == ROWS
    assert scanned(source, ["id", "val"]) == first
    with patch("exec_nodes.sources.lance_source.scan_dataset", side_effect=AssertionError):
        assert scanned(source, ["id", "val"]) == first
        assert scanned(source, ["val"]) == [(val, address) for _, val, address in first]


def test_a_scan_that_is_not_finished_keeps_nothing(source: LanceSource) -> None:
    scanned(source, ["id"])
    for part in range(source.parts):
        next(iter(source.scan(["id"], (), None, part)))
    with (
        patch("exec_nodes.sources.lance_source.scan_dataset", side_effect=AssertionError),
        pytest.raises(AssertionError),
    ):
        scanned(source, ["id"])


def test_what_does_not_fit_is_not_kept(source: LanceSource, cache: ByteCache) -> None:
    with patch.object(ByteCache, "largest", ROWS * 8 - 1):
        for _ in range(3):
            scanned(source, ["id"])
    assert cache.nbytes == 0


def test_rows_that_lance_has_deleted_stay_away(source: LanceSource, cache: ByteCache) -> None:
    source.dataset.delete("id % 2 = 0")
    dataset = lance.dataset(source.dataset.uri)
    left = LanceSource.base(dataset, TableInfo(SCHEMA, ("id",), ()), etag="2", cache=cache)
    for _ in range(3):
        assert [row[0] for row in scanned(left, ["id"])] == list(range(1, ROWS, 2))
    assert cache.nbytes == 0
