"""Columns that are scanned, or rows of which are fetched, again and again are kept: then nothing is
read, and of a later version what is new. `test_versions_property` compares the values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lance
import numpy as np
import pyarrow as pa
import pytest

from exec_nodes.base.columns import ROW_ADDRESS
from exec_nodes.base.tasks import background_by
from exec_nodes.keys.keys import KeyBatch
from exec_nodes.lance.fragments import fragment_identity
from exec_nodes.resident.admission import Admission
from exec_nodes.resident.columns import FragmentColumns
from exec_nodes.resident.rows import ResidentRows
from exec_nodes.resident.store import Key, ResidentStore
from exec_nodes.sources.lance_source import LanceSource
from planner.model import TableInfo
from tests.exec_nodes.kinds import COLUMNS
from tests.exec_nodes.resident.reads import fragments_read, no_reads, reads
from tests.exec_nodes.tables import key_lookups, resident_rows
from tests.model.racing import race

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string(), "later": pa.int8()})
ROWS, FRAGMENT = 100, 30
Row = tuple[object, ...]


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    """What is done in the background is done when the call returns."""
    with background_by(lambda call: call()):
        yield


@pytest.fixture
def cache() -> ResidentStore:
    return ResidentStore()


@pytest.fixture
def uri(tmp_path: Path) -> str:
    lance.write_dataset(rows(0, ROWS), tmp_path / "t", max_rows_per_file=FRAGMENT)
    return str(tmp_path / "t")


def rows(start: int, end: int) -> pa.Table:
    keys = range(start, end)
    return pa.table({"id": keys, "val": [f"v{i}" for i in keys]})


def newest(uri: str, cache: ResidentStore) -> LanceSource:
    dataset = lance.dataset(uri)
    info = TableInfo(SCHEMA, ("id",))
    return LanceSource.base(dataset, info, etag=str(dataset.version), resident=cache)


def change(uri: str) -> None:
    """Deletes a third of the rows, and adds a fragment."""
    lance.dataset(uri).delete("id % 3 = 0")
    lance.write_dataset(rows(ROWS, ROWS + 10), uri, mode="append")


def address(row: int) -> int:
    return (row // FRAGMENT << 32) + row % FRAGMENT


def scanned(source: LanceSource, *columns: str) -> list[Row]:
    parts = [source.scan(columns, (), None, part) for part in range(source.parts)]
    batches = [batch for part in parts for batch in part]
    assert all(batch.schema.names == [*columns, ROW_ADDRESS] for batch in batches)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def fetched(source: LanceSource, *rows: int) -> list[Row]:
    table = source.rows_at(np.array(list(map(address, rows)), np.uint64), ["val", "later", "id"])
    assert table.schema == pa.schema([SCHEMA.field(n) for n in ("val", "later", "id")])
    return [tuple(row.values()) for row in table.to_pylist()]


def whole(*rows: int) -> list[Row]:
    return [(f"v{row}", None, row) for row in rows]


def test_the_third_scan_of_columns_reads_nothing(uri: str, cache: ResidentStore) -> None:
    source = newest(uri, cache)
    first = scanned(source, "id", "val")
    assert len(first) == ROWS
    assert scanned(source, "id", "val") == first
    with no_reads():
        assert scanned(source, "id", "val") == first
        assert scanned(source, "val") == [(val, address) for _, val, address in first]


def test_a_column_is_kept_that_is_scanned_again_with_another_one_or_alone(
    uri: str, cache: ResidentStore
) -> None:
    source = newest(uri, cache)
    both = scanned(source, "id", "val")
    ids, values = scanned(source, "id"), scanned(source, "val")
    with no_reads():
        assert (scanned(source, "id"), scanned(source, "val")) == (ids, values)
        assert scanned(source, "id", "val") == both


def test_a_scan_that_is_not_finished_keeps_nothing(uri: str, cache: ResidentStore) -> None:
    source = newest(uri, cache)
    scanned(source, "id")
    for part in range(source.parts):
        next(iter(source.scan(["id"], (), None, part)))
    with reads() as read:
        scanned(source, "id")
    assert read.called


def test_fragments_are_kept_as_far_as_they_fit(uri: str) -> None:
    source = newest(uri, store := ResidentStore(4 * (ROWS * 16 - 1)))
    first = scanned(source, "id")
    for _ in range(3):  # with addresses
        assert scanned(source, "id") == first
    assert 0 < store.kinds()["column"].entries < 4


def test_rows_come_from_memory_after_a_fetch(uri: str, cache: ResidentStore) -> None:
    source, asked = newest(uri, cache), (95, 3, 31, 3, 60)
    assert fetched(source, *asked) == whole(*asked)
    with no_reads():
        assert fetched(source, *asked) == whole(*asked)
        assert fetched(source, 7) == whole(7)


def test_a_later_version_is_read_where_it_is_new(uri: str, cache: ResidentStore) -> None:
    before = newest(uri, cache)
    first = [scanned(before, "id", "val") for _ in range(2)][-1]
    change(uri)
    after = newest(uri, cache)
    with reads() as read:
        second = scanned(after, "id", "val")
        assert fetched(after, 61, 4 * FRAGMENT + 9) == whole(61, 109)
    assert fragments_read(read) == [[4]] and not read.fetch.called
    assert second[:66] == [row for row in first if row[0] % 3]  # type: ignore[operator]
    assert [row[:2] for row in second[66:]] == [(i, f"v{i}") for i in range(100, 110)]
    with no_reads():
        for _ in range(2):  # in turns, as while queries move on to the later one
            assert scanned(before, "id", "val") == first
            assert scanned(after, "id", "val") == second
            assert fetched(before, 0, 60) == whole(0, 60)


def test_much_that_is_new_is_fetched_until_that_has_paid_for_reading_it(
    uri: str, cache: ResidentStore, within: Any
) -> None:
    fetched(newest(uri, cache), 1)
    change(uri)
    within(Admission.set(inline=0))
    with reads() as read:
        for _ in range(2):
            assert fetched(newest(uri, cache), 4 * FRAGMENT) == whole(100)
    assert read.fetch.call_count == 1


def test_columns_that_are_too_large_are_fetched(uri: str) -> None:
    source = newest(uri, ResidentStore(512))
    with reads() as read:
        for _ in range(20):
            assert fetched(source, 1) == whole(1)
    assert not read.called


def test_a_version_is_extended_by_what_is_new_and_deleted_rows_are_left_out(
    uri: str, cache: ResidentStore
) -> None:
    for _ in range(2):
        fetched(newest(uri, cache), 1)
    lance.dataset(uri).delete("id < 20")
    change(uri)
    dataset, schema = lance.dataset(uri), pa.schema([SCHEMA.field("id"), SCHEMA.field("val")])
    later, columns = newest(uri, cache), FragmentColumns(uri, dataset, cache)
    later.extend()
    with no_reads():
        assert fetched(later, 4 * FRAGMENT, 25) == whole(100, 25)
    kept = columns.whole(dataset.get_fragments()[0], schema)
    assert kept is not None
    assert kept["id"].to_pylist() == [i for i in range(20, 30) if i % 3]
    gone = columns.rows(dataset.get_fragments()[0], np.array([address(5)], np.uint64), schema)
    assert gone is None  # two thirds were deleted, and are not held for this version


def test_a_version_is_extended_by_nothing_that_did_not_fit(uri: str, cache: ResidentStore) -> None:
    """Fragments before the last one that is kept were left out, or evicted."""
    fetched(newest(uri, cache), 1)
    columns = FragmentColumns(uri, lance.dataset(uri), cache)
    cache.evict(fragment_identity(uri, columns.fragments[0]))
    fetched(newest(uri, cache), 35)
    lance.write_dataset(rows(100, 110), uri, mode="append")
    with reads() as read:
        newest(uri, cache).extend()
    assert {number for ids in fragments_read(read) for number in ids} == {4}


def test_threads_that_fetch_at_once_read_a_column_once_and_never_fail(uri: str) -> None:
    schema = pa.schema([SCHEMA.field("id")])
    for number in range(20):
        columns = FragmentColumns(f"place {number}", lance.dataset(uri), ResidentStore())
        warm = ResidentRows(columns, 100)
        with reads() as read:
            race(*[partial(warm.fetched, rows(0, 1).select(["id"]))] * 8)
            assert 1 <= read.call_count <= 8
        taken = warm.take(np.array([address(2), address(33)], np.uint64), schema)
        assert taken is not None and taken["id"].to_pylist() == [2, 33]


def test_the_keys_that_the_next_version_starts_from_are_in_use_as_long_as_lookups_are(
    uri: str,
) -> None:
    """Other entries of a full cache push out what nobody asks for, and so not these."""
    cache = ResidentStore(40_000)
    lookups = key_lookups(lance.dataset(uri), cache)
    for number in range(100):
        found = lookups.rows_of(KeyBatch(pa.table({"id": [number]})), rows(0, 0).schema)
        assert found is not None and found["id"].to_pylist() == [number]
        cache.put(Key("key places", ("other", number)), np.zeros(1), 5_000)
    assert cache.get(Key("key places", (uri,), 0)) is not None
    assert cache.get(Key("key places", ("other", 0))) is None


def test_values_of_every_type_are_the_same_from_memory(tmp_path: Path) -> None:
    texts = pa.array(["a", None, "c", "a"])
    columns = {
        "id": pa.array([0, 1, 2, 3]),
        "list": pa.array([[1, None], [], None, [3]]),
        "fixed": pa.array([[1.0, 2.0], None, [3.0, None], [0.0, 0.0]], pa.list_(pa.float32(), 2)),
        "struct": pa.array([{"a": 1, "b": [None]}, None, {"a": None, "b": ["x"]}, {}]),
        "dictionary": texts.dictionary_encode(),
        "json": pa.ExtensionArray.from_storage(
            pa.json_(pa.utf8()), pa.array(['{"a":1}', None] * 2)
        ),
        "none": pa.nulls(4, pa.int32()),
        **{
            name: values.take(pa.array([0, None, min(1, len(values) - 1), 0]))
            for name, values in COLUMNS.items()
        },
    }
    dataset = lance.write_dataset(pa.table(columns), tmp_path / "t", data_storage_version="2.2")
    warm, schema, (fragment,) = resident_rows(dataset), dataset.schema, dataset.get_fragments()
    cold = FragmentColumns("t", dataset, ResidentStore())
    expected = [cold.fetch(fragment, at, schema.names) for at in range(4)]
    assert warm.at(0, schema) is not None
    with patch.object(FragmentColumns, "fetch", side_effect=AssertionError):
        for at, row in enumerate(expected):
            found = warm.at(at, schema)
            assert found is not None and row is not None
            assert found.to_pylist() == row.to_pylist() and found.schema.equals(schema)
