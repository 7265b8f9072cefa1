"""Rows taken one by one: from Lance, then from memory, and the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lance
import numpy as np
import pyarrow as pa
import pytest

from exec_nodes.base.tasks import background_by
from exec_nodes.keys.keys import KeyBatch
from exec_nodes.resident.columns import FragmentColumns
from exec_nodes.resident.rows import ResidentRows
from exec_nodes.resident.store import Key, ResidentStore
from tests.exec_nodes.kinds import COLUMNS
from tests.exec_nodes.tables import key_lookups, resident_rows

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})


@pytest.fixture(autouse=True)
def map_concurrently() -> Iterator[None]:
    with background_by(lambda call: call()):
        yield


@pytest.fixture
def dataset(tmp_path: Path) -> Any:
    keys = range(100)
    table = pa.table({"id": keys, "val": [f"v{i}" for i in keys]}, SCHEMA)
    return lance.write_dataset(table, tmp_path / "t", max_rows_per_file=30)


def every(rows: ResidentRows) -> dict[int, tuple[int, str]]:
    """By address, the rows of the version that wrote 100, 30 a fragment, and of one fragment that
    is not there."""
    found = {}
    for key in range(120):
        address = (key // 30 << 32) + key % 30 if key < 100 else (9 << 32) + key
        row = rows.at(address, SCHEMA)
        if row is not None:
            assert row.schema == SCHEMA
            ((key,), (val,)) = row["id"].to_pylist(), row["val"].to_pylist()
            found[address] = (key, val)
    return found


def from_memory() -> Any:
    return patch.object(FragmentColumns, "fetch", side_effect=AssertionError)


def test_rows_come_from_memory_once_one_was_fetched(dataset: Any) -> None:
    rows = resident_rows(dataset)
    assert rows.at(3, SCHEMA) is not None
    with from_memory():
        found = every(rows)
    assert list(found.values()) == [(i, f"v{i}") for i in range(100)]


def test_rows_that_were_deleted_since_they_were_read_are_not_found(dataset: Any) -> None:
    before = resident_rows(dataset.checkout_version(1))
    assert before.at(0, SCHEMA) is not None
    dataset.delete("id % 3 = 0")
    after = resident_rows(lance.dataset(dataset.uri))
    with from_memory():
        for _ in range(2):  # both versions, in turns
            assert [key for key, _ in every(after).values()] == [i for i in range(100) if i % 3]
            assert [key for key, _ in every(before).values()] == list(range(100))


def test_a_fragment_that_a_version_lacks_has_no_rows(dataset: Any) -> None:
    assert resident_rows(dataset).at(9 << 32, SCHEMA) is None


def test_a_row_of_what_was_written_later_is_found(dataset: Any) -> None:
    assert resident_rows(dataset).at(0, SCHEMA) is not None
    later = pa.table({"id": [100], "val": ["new"]}, SCHEMA)
    dataset = lance.write_dataset(later, dataset.uri, mode="append")
    row = resident_rows(lance.dataset(dataset.uri)).at(4 << 32, SCHEMA)
    assert row is not None and row.to_pylist() == [{"id": 100, "val": "new"}]


def test_the_keys_that_the_next_version_starts_from_are_in_use_as_long_as_lookups_are(
    dataset: Any,
) -> None:
    """Other entries of a full cache push out what nobody asks for, and so not these."""
    cache = ResidentStore(40_000)
    lookups = key_lookups(dataset, cache)
    for number in range(100):
        key = key_of(number % 100)
        found = lookups.rows_of(key, SCHEMA)
        assert found is not None and found["id"].to_pylist() == [number % 100]
        cache.put(Key("key places", ("other", number)), np.zeros(1), 5_000)
    assert cache.get(Key("key places", (dataset.uri,), 0)) is not None
    assert cache.get(Key("key places", ("other", 0))) is None


def key_of(value: int) -> KeyBatch:
    return KeyBatch(pa.table({"id": [value]}))


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
    rows, schema = resident_rows(dataset), dataset.schema
    columns, (fragment,) = FragmentColumns("t", dataset, ResidentStore()), dataset.get_fragments()
    cold = [columns.fetch(fragment, at, schema.names) for at in range(4)]
    assert rows.at(0, schema) is not None
    with from_memory():
        warm = [rows.at(at, schema) for at in range(4)]
    assert [row and row.to_pylist() for row in warm] == [row and row.to_pylist() for row in cold]
    assert all(row is not None and row.schema.equals(schema) for row in warm)
