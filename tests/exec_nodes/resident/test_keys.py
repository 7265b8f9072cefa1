"""Keys kept in memory find the rows that Lance's own lookup finds."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from exec_nodes.keys.keys import KeyBatch
from exec_nodes.resident import key_lookups
from exec_nodes.resident import keys as key_rows
from exec_nodes.resident.key_lookups import KeyLookups
from exec_nodes.resident.keys import KeyRows, KnownKeys, is_integral, read_keys
from exec_nodes.resident.store import ResidentStore
from tests.exec_nodes.tables import single_rows

SCHEMA = pa.schema({"val": pa.int64()})


def _dataset(folder: Path, keys: Any) -> Any:
    table = pa.table({"id": keys, "val": pa.array(range(len(keys)))})
    return lance.write_dataset(table, folder, max_rows_per_file=70)


class Found:
    """The keys of one version, and its rows, which come from Lance."""

    def __init__(self, dataset: Any, known: KnownKeys | None = None) -> None:
        self.known = read_keys(dataset, "id", known)
        self._schema = dataset.schema
        self._keys = KeyRows(dataset, self.known)
        self._rows = single_rows(dataset)

    def take(self, key: int, names: list[str]) -> pa.Table | None:
        schema = pa.schema([self._schema.field(name) for name in names])
        rows = (self._rows.at(address, schema) for address in self._keys.addresses(key))
        return next((row for row in rows if row is not None), None)


def value(keys: Found, key: int) -> int:
    row = keys.take(key, ["val"])
    assert row is not None
    (found,) = row["val"].to_pylist()
    return int(found)


@pytest.mark.slow
@pytest.mark.parametrize("ascending", [True, False])
def test_each_key_is_found_across_fragments_and_deleted_rows(
    tmp_path: Path, ascending: bool
) -> None:
    keys = np.arange(0, 600, 3) if ascending else np.random.default_rng(1).permutation(200) * 3
    dataset = _dataset(tmp_path / "t", pa.array(keys))
    dataset.delete("id % 7 = 0")
    places = Found(dataset)
    for key in range(-1, 602):
        row = places.take(key, ["val", "id"])
        expected = dataset.to_table(columns=["val", "id"], filter=f"id = {key}")
        assert (row is None) == (expected.num_rows == 0)
        if row is not None:
            assert row.equals(expected)


def test_dates_and_the_ends_of_the_range_are_found(tmp_path: Path) -> None:
    days = [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)]
    assert is_integral(pa.date32())
    places = Found(_dataset(tmp_path / "d", pa.array(days)))
    assert value(places, -1) == 0
    ends = pa.array([2**64 - 1, 0], pa.uint64())
    places = Found(_dataset(tmp_path / "u", ends))
    assert value(places, 2**64 - 1) == 0
    assert places.take(1, ["val"]) is None


def test_an_empty_table_has_no_key(tmp_path: Path) -> None:
    assert Found(_dataset(tmp_path / "e", pa.array([], pa.int64()))).take(1, ["val"]) is None


@pytest.mark.slow
def test_another_version_reads_only_the_keys_of_new_fragments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After merges, each version finds its own rows: replaced, deleted and new ones."""
    random = np.random.default_rng(3)
    dataset = _dataset(tmp_path / "t", pa.array(random.permutation(200)))
    versions = [dataset.checkout_version(dataset.version)]
    held = [Found(versions[0])]
    read: list[list[int] | None] = []
    original = key_rows._read

    def counted(dataset: Any, column: str, fragments: Any) -> Any:
        read.append(None if fragments is None else [one.fragment_id for one in fragments])
        return original(dataset, column, fragments)

    monkeypatch.setattr(key_rows, "_read", counted)
    for step in range(3):
        ids = random.choice(240, 30, replace=False)
        rows = pa.table({"id": ids, "val": pa.array(ids + 1000 * step)})
        merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(rows)
        dataset.delete(f"id % 50 = {step}")
        versions.append(dataset.checkout_version(dataset.version))
        held.append(Found(versions[-1], held[-1].known))
    assert read == [[3], [4], [5]]
    # What a newer version knows serves an older one, too.
    held.append(Found(versions[1], held[-1].known))
    versions.append(versions[1])
    for version, rows_of in zip(versions, held, strict=True):
        for key in range(240):
            row = rows_of.take(key, ["val"])
            expected = version.to_table(columns=["val"], filter=f"id = {key}")
            assert (pa.table({"val": pa.array([], pa.int64())}) if row is None else row).equals(
                expected
            )
    dataset.optimize.compact_files()
    read.clear()
    assert Found(dataset, held[-1].known).take(0, ["val"]) is None
    assert read == [[6]]


def test_many_runs_become_one(tmp_path: Path) -> None:
    dataset = _dataset(tmp_path / "t", pa.array(range(50)))
    held = Found(dataset)
    lengths = []
    for step in range(key_rows._MOST_RUNS + 3):
        rows = pa.table({"id": [step, 100 + step], "val": [-step, step]})
        merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(rows)
        held = Found(dataset, held.known)
        lengths.append(len(held.known.runs))
        for key in (0, step, 49, 100, 100 + step):
            row = held.take(key, ["val"])
            assert row is not None
            assert row.equals(dataset.to_table(columns=["val"], filter=f"id = {key}"))
    assert lengths == [*range(2, key_rows._MOST_RUNS + 2), 1, 2, 3]


def test_rows_that_a_restore_brings_back_are_found(tmp_path: Path) -> None:
    dataset = _dataset(tmp_path / "t", pa.array(range(200)))
    before = dataset.version
    dataset.delete("id % 3 = 0")
    held = Found(lance.dataset(tmp_path / "t"))
    assert held.take(6, ["val"]) is None
    lance.dataset(tmp_path / "t", version=before).restore()
    restored = Found(lance.dataset(tmp_path / "t"), held.known)
    assert [value(restored, key) for key in (6, 7)] == [6, 7]


@pytest.mark.parametrize("few", [True, False], ids=["at once", "in the background"])
def test_while_keys_of_a_new_version_are_read_lookups_find_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    if not few:
        monkeypatch.setattr(key_lookups, "_READ_INLINE", 0)
    asked: list[Callable[[], object]] = []
    monkeypatch.setattr(key_lookups, "in_background", asked.append)
    monkeypatch.setattr(key_lookups, "ROWS_PER_LOOKUP", 1_000_000)
    cache = ResidentStore()
    first = _dataset(tmp_path / "t", pa.array(np.random.default_rng(3).permutation(200)))
    before = KeyLookups("before", cache, first, single_rows(first))
    assert found(before, range(-1, 220)) == every(first)
    assert len(asked) == 1
    asked.pop()()
    assert found(before, range(-1, 220)) == every(first)
    rows = pa.table({"id": pa.array([5, 210, 77]), "val": pa.array([1000, 1001, 1002])})
    merge = first.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(rows)
    second = lance.dataset(tmp_path / "t")
    after = KeyLookups("after", cache, second, single_rows(second))
    for _ in range(2):
        assert found(after, range(-1, 220)) == every(second)
        for read in asked:
            read()
    assert len(asked) == (0 if few else 1)
    monkeypatch.setattr(key_lookups, "key_condition", None)  # Lance is not asked any more
    assert found(after, range(-1, 220)) == every(second)


def found(lookups: KeyLookups, keys: range) -> dict[int, int]:
    values = {}
    for key in keys:
        rows = lookups.rows_of(KeyBatch(pa.table({"id": [key]})), SCHEMA)
        assert rows is not None
        if rows.num_rows:
            values[key] = rows["val"][0].as_py()
    return values


def every(dataset: Any) -> dict[int, int]:
    rows = dataset.to_table(columns=["id", "val"])
    return dict(zip(rows["id"].to_pylist(), rows["val"].to_pylist(), strict=True))
