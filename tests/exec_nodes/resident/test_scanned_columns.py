"""Columns that are scanned again are kept, and are the rows that Lance gives."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from exec_nodes.base.columns import ROW_ADDRESS
from exec_nodes.resident.store import ResidentStore
from exec_nodes.sources.lance_source import LanceSource
from planner.model import TableInfo
from tests.exec_nodes.resident.reads import fragments_read, no_reads, reads

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})
ROWS = 10_000


@pytest.fixture
def cache() -> ResidentStore:
    return ResidentStore()


@pytest.fixture
def source(tmp_path: Path, cache: ResidentStore) -> LanceSource:
    table = pa.table({"id": range(ROWS), "val": [f"v{i}" for i in range(ROWS)]}, SCHEMA)
    dataset = lance.write_dataset(table, tmp_path / "t", max_rows_per_file=3_000)
    return LanceSource.base(dataset, TableInfo(SCHEMA, ("id",), ()), etag="1", resident=cache)


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
    with no_reads():
        assert scanned(source, ["id", "val"]) == first
        assert scanned(source, ["val"]) == [(val, address) for _, val, address in first]


def test_a_column_that_was_scanned_with_another_one_is_kept_when_it_is_scanned_again(
    source: LanceSource,
) -> None:
    both = scanned(source, ["id", "val"])
    ids, values = scanned(source, ["id"]), scanned(source, ["val"])
    with no_reads():
        assert scanned(source, ["id"]) == ids
        assert scanned(source, ["val"]) == values
        assert scanned(source, ["id", "val"]) == both


def test_a_scan_that_is_not_finished_keeps_nothing(source: LanceSource) -> None:
    scanned(source, ["id"])
    for part in range(source.parts):
        next(iter(source.scan(["id"], (), None, part)))
    with reads() as read:
        scanned(source, ["id"])
    assert read.called


def test_fragments_are_kept_as_far_as_they_fit(source: LanceSource) -> None:
    first = scanned(source, ["id"])
    store = ResidentStore(4 * (ROWS * 16 - 1))
    again = based(source, store)
    for _ in range(3):  # with addresses
        assert scanned(again, ["id"]) == first
    assert 0 < store.kinds()["column"].bytes < ROWS * 16


def based(source: LanceSource, cache: ResidentStore) -> LanceSource:
    """The newest version of the source's table."""
    dataset = lance.dataset(source.dataset.uri)
    schema = pa.schema([pa.field(f.name, f.type) for f in dataset.schema])
    info = TableInfo(schema, ("id",), ())
    return LanceSource.base(dataset, info, etag=str(dataset.version), resident=cache)


def test_a_later_version_is_read_where_it_is_new(source: LanceSource, cache: ResidentStore) -> None:
    before = [scanned(source, ["id", "val"]) for _ in range(2)][-1]
    source.dataset.delete("id % 3 = 0")
    lance.write_dataset(
        pa.table({"id": [-1], "val": ["new"]}, SCHEMA), source.dataset.uri, mode="append"
    )
    later = based(source, cache)
    with reads() as read:
        found = scanned(later, ["id", "val"])
    assert found[:-1] == [row for row in before if row[0] % 3]  # type: ignore[operator]
    assert found[-1][:2] == (-1, "new")
    assert fragments_read(read) == [[4]]
    with no_reads():
        for _ in range(2):  # in turns, as while queries move on to the later one
            assert scanned(source, ["id", "val"]) == before
            assert scanned(later, ["id", "val"]) == found
