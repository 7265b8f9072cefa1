"""Columns of which rows are fetched again and again are kept, and serve later versions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from exec_nodes.base.tasks import background_by
from exec_nodes.lance.fragments import fragment_identity
from exec_nodes.resident.admission import Admission
from exec_nodes.resident.columns import FragmentColumns
from exec_nodes.resident.rows import ResidentRows
from exec_nodes.resident.store import ResidentStore
from exec_nodes.sources.lance_source import LanceSource
from planner.model import TableInfo
from tests.exec_nodes.resident.reads import fragments_read, no_reads, reads
from tests.model.racing import race

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string(), "later": pa.int8()})


@pytest.fixture(autouse=True)
def map_concurrently() -> Iterator[None]:
    """What is done in the background is done when the call returns."""
    with background_by(lambda call: call()):
        yield


@pytest.fixture
def cache() -> ResidentStore:
    return ResidentStore()


@pytest.fixture
def dataset(tmp_path: Path) -> lance.LanceDataset:
    return lance.write_dataset(rows(0, 100), tmp_path / "t", max_rows_per_file=30)


def rows(start: int, end: int) -> pa.Table:
    keys = range(start, end)
    return pa.table({"id": keys, "val": [f"v{i}" for i in keys]})


def at_version(dataset: lance.LanceDataset, cache: ResidentStore) -> LanceSource:
    info = TableInfo(SCHEMA, ("id",), ())
    return LanceSource.base(dataset, info, etag=str(dataset.version), resident=cache)


def found(source: LanceSource, addresses: list[int]) -> list[tuple[object, ...]]:
    table = source.rows_at(np.array(addresses, np.uint64), ["val", "later", "id"])
    assert table.schema == pa.schema([SCHEMA.field(n) for n in ("val", "later", "id")])
    return [tuple(row.values()) for row in table.to_pylist()]


def address(row: int) -> int:
    return (row // 30 << 32) + row % 30


def test_rows_come_from_memory_after_a_fetch(
    dataset: lance.LanceDataset, cache: ResidentStore
) -> None:
    source = at_version(dataset, cache)
    asked = [95, 3, 31, 3, 60]
    expected = [(f"v{i}", None, i) for i in asked]
    assert found(source, list(map(address, asked))) == expected
    with no_reads():
        assert found(source, list(map(address, asked))) == expected
        assert found(source, [address(7)]) == [("v7", None, 7)]


def test_of_a_later_version_the_new_fragments_are_read(
    dataset: lance.LanceDataset, cache: ResidentStore
) -> None:
    found(at_version(dataset, cache), [address(1)])
    dataset.delete("id % 2 = 0")
    lance.write_dataset(rows(100, 110), dataset.uri, mode="append")
    later = at_version(lance.dataset(dataset.uri), cache)
    with reads() as read:
        for _ in range(2):
            assert found(later, [(4 << 32) + 9, address(61)]) == [
                ("v109", None, 109),
                ("v61", None, 61),
            ]
    assert fragments_read(read) == [[4]] and not read.fetch.called


def test_much_that_is_new_is_fetched_until_that_has_paid_for_reading_it(
    dataset: lance.LanceDataset, cache: ResidentStore, within: Any
) -> None:
    found(at_version(dataset, cache), [address(1)])
    lance.write_dataset(rows(100, 110), dataset.uri, mode="append")
    later = at_version(lance.dataset(dataset.uri), cache)
    within(Admission.set(inline=0))
    with reads() as read:
        for _ in range(2):
            assert found(later, [4 << 32]) == [("v100", None, 100)]
    assert read.fetch.call_count == 1


def test_columns_that_are_too_large_are_fetched(dataset: lance.LanceDataset) -> None:
    source = at_version(dataset, ResidentStore(512))
    with reads() as read:
        for _ in range(20):
            assert found(source, [address(1)]) == [("v1", None, 1)]
    assert not read.called


def test_threads_that_fetch_at_once_read_a_column_once_and_never_fail(
    dataset: lance.LanceDataset,
) -> None:
    schema = pa.schema([SCHEMA.field("id")])
    for number in range(20):
        columns = FragmentColumns(f"place {number}", dataset, ResidentStore())
        warm = ResidentRows(columns, 100)
        with reads() as read:
            race(*[partial(warm.fetched, rows(0, 1).select(["id"]))] * 8)
            assert 1 <= read.call_count <= 8
        taken = warm.take(np.array([address(2), address(33)], np.uint64), schema)
        assert taken is not None and taken["id"].to_pylist() == [2, 33]


def test_a_version_is_extended_by_what_is_new_and_deleted_rows_are_left_out(
    dataset: lance.LanceDataset, cache: ResidentStore
) -> None:
    for _ in range(2):
        found(at_version(dataset, cache), [address(1)])
    dataset.delete("id < 20")
    lance.write_dataset(rows(100, 110), dataset.uri, mode="append")
    dataset = lance.dataset(dataset.uri)
    later, columns = at_version(dataset, cache), FragmentColumns(dataset.uri, dataset, cache)
    schema = pa.schema([SCHEMA.field("id"), SCHEMA.field("val")])
    later.extend()
    with no_reads():
        assert found(later, [4 << 32, address(25)]) == [("v100", None, 100), ("v25", None, 25)]
    whole = columns.whole(dataset.get_fragments()[0], schema)
    assert whole is not None and whole["id"].to_pylist() == list(range(20, 30))
    gone = columns.rows(dataset.get_fragments()[0], np.array([address(5)], np.uint64), schema)
    assert gone is None  # two thirds were deleted, and are not held for this version


def test_a_version_is_extended_by_nothing_that_did_not_fit(
    dataset: lance.LanceDataset, cache: ResidentStore
) -> None:
    """Fragments before the last one that is kept were left out, or evicted."""
    found(at_version(dataset, cache), [address(1)])
    columns = FragmentColumns(dataset.uri, dataset, cache)
    cache.evict(fragment_identity(dataset.uri, columns.fragments[0]))
    found(at_version(dataset, cache), [address(35)])
    lance.write_dataset(rows(100, 110), dataset.uri, mode="append")
    later = lance.dataset(dataset.uri)
    with reads() as read:
        at_version(later, cache).extend()
    assert {one for ids in fragments_read(read) for one in ids} == {4}
