"""Keys kept in memory find the rows that Lance's own lookup finds."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from exec_nodes.base.tasks import background_by
from exec_nodes.keys.keys import KeyBatch
from exec_nodes.resident import keys as resident_keys
from exec_nodes.resident.admission import Admission
from exec_nodes.resident.keys import KeyLookups
from exec_nodes.resident.runs import ResidentRuns
from exec_nodes.resident.store import ResidentStore
from tests.exec_nodes.tables import key_lookups

SCHEMA = pa.schema({"val": pa.int64()})


def _dataset(folder: Path, keys: Any) -> Any:
    table = pa.table({"id": keys, "val": pa.array(range(len(keys)))})
    return lance.write_dataset(table, folder, max_rows_per_file=70)


def read(dataset: Any, store: ResidentStore | None = None) -> KeyLookups:
    """Lookups among keys that are in memory."""
    found = key_lookups(dataset, ResidentStore() if store is None else store)
    found._runs.extend(found._reader)
    return found


def found(lookups: KeyLookups, keys: Iterable[Any], kind: pa.DataType) -> dict[Any, int]:
    values = {}
    for key in keys:
        rows = lookups.rows_of(KeyBatch(pa.table({"id": pa.array([key], kind)})), SCHEMA)
        assert rows is not None
        if rows.num_rows:
            values[key] = rows["val"][0].as_py()
    return values


def every(dataset: Any) -> dict[Any, int]:
    rows = dataset.to_table(columns=["id", "val"])
    return dict(zip(rows["id"].to_pylist(), rows["val"].to_pylist(), strict=True))


@pytest.fixture
def no_lance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lance is asked for no key."""
    monkeypatch.setattr(resident_keys, "key_condition", None)


@pytest.mark.usefixtures("no_lance")
def test_dates_and_the_ends_of_the_range_are_found(tmp_path: Path) -> None:
    days = [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)]
    dated = _dataset(tmp_path / "d", pa.array(days))
    asked = [*days, datetime.date(1970, 1, 1)]
    assert found(read(dated), asked, pa.date32()) == dict(zip(days, range(2), strict=True))
    ends = _dataset(tmp_path / "u", pa.array([2**64 - 1, 0], pa.uint64()))
    assert found(read(ends), [2**64 - 1, 0, 1], pa.uint64()) == {2**64 - 1: 0, 0: 1}


@pytest.mark.parametrize("few", [True, False], ids=["at once", "in the background"])
def test_while_keys_of_a_new_version_are_read_lookups_find_its_rows(
    tmp_path: Path, within: Any, monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    if not few:
        within(Admission.set(inline=0))
    asked: list[Callable[[], object]] = []

    def later(call: Any) -> None:
        asked.append(call) if isinstance(call.func.__self__, ResidentRuns) else call()

    within(background_by(later))
    within(Admission.set(lookup=1 << 30))
    cache, keys = ResidentStore(), range(-1, 220)
    first = _dataset(tmp_path / "t", pa.array(np.random.default_rng(3).permutation(200)))
    before = key_lookups(first, cache)
    assert found(before, keys, pa.int64()) == every(first)
    assert len(asked) == 1
    asked.pop()()
    assert found(before, keys, pa.int64()) == every(first)
    rows = pa.table({"id": pa.array([5, 210, 77]), "val": pa.array([1000, 1001, 1002])})
    merge = first.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(rows)
    second = lance.dataset(tmp_path / "t")
    after = key_lookups(second, cache)
    for _ in range(2):
        assert found(after, keys, pa.int64()) == every(second)
        for call in asked:
            call()
    assert len(asked) == (0 if few else 1)
    monkeypatch.setattr(resident_keys, "key_condition", None)  # Lance is not asked any more
    assert found(after, keys, pa.int64()) == every(second)


SPREADS: dict[str, list[int]] = {
    "dense": list(range(500)),
    "twice": [*range(100), *range(50, 100), *range(80, 100)],
    "far apart": [7**power for power in range(20)],
    "one": [3],
    "equal": [5] * 9,
}


@pytest.mark.parametrize("spread", SPREADS)
def test_many_keys_are_found_among_sorted_ones(tmp_path: Path, spread: str) -> None:
    rng = Random(3)
    values = SPREADS[spread]
    for at, (kind, keys) in enumerate(
        [
            (pa.int64(), values),
            (pa.int64(), [-value for value in values]),
            (pa.int64(), [*values, -(2**63), 2**63 - 1]),
            (pa.uint64(), [*values, 2**64 - 1, 2**63]),
            (pa.int16(), [value % 30_000 - 9 for value in values]),
            (pa.timestamp("us"), values),
        ]
    ):
        shuffled = rng.sample(keys, len(keys))
        dataset = _dataset(tmp_path / str(at), pa.array(shuffled, _whole(kind)).cast(kind))
        stored = dataset.scanner(columns=["id"], with_row_address=True).to_table()
        own = stored["id"].cast(_whole(kind)).to_pylist()
        for sought in (shuffled[::3], [*shuffled, *shuffled], [11, 12], []):
            column = pa.array(sought, _whole(kind))
            rows = read(dataset).find_all(column)
            assert rows is not None
            asked = set(sought)
            expected = [
                address
                for key, address in zip(own, stored["_rowaddr"].to_pylist(), strict=True)
                if key in asked
            ]
            assert rows.tolist() == sorted(expected), (kind, sought)
            key_at = dict(zip(stored["_rowaddr"].to_pylist(), own, strict=True))
            each_row = read(dataset).find_each(column)
            assert each_row is not None and sorted(each_row[0].tolist()) == sorted(expected)
            for address, position in zip(*map(np.ndarray.tolist, each_row), strict=True):
                assert key_at[address] == sought[position], (kind, sought)
        pairs = sorted(zip(own, stored["_rowaddr"].to_pylist(), strict=True))
        for low in (own[0] - 1, own[0], own[-1], 1 - 2**63, 0):
            for high in (low, low + 5, low + 60, 2**64):
                expected = sorted(address for key, address in pairs if low <= key <= high)
                rows = read(dataset).within(low, high)
                many = len(expected) * Admission.taken > len(own)
                assert (None if rows is None else rows.tolist()) == (None if many else expected)


@pytest.mark.parametrize("gone", ["id < 100", "id % 3 = 0", "id > 60", "id < 1000"])
def test_many_keys_are_found_in_the_fragments_and_rows_that_a_version_has(
    tmp_path: Path, gone: str
) -> None:
    """By keys of an earlier version, which had all of its rows and none of the new ones."""
    cache, first = ResidentStore(), _dataset(tmp_path / "t", pa.array(range(200)))
    read(first, cache)
    first.delete(gone)
    second = lance.write_dataset(
        pa.table({"id": [-1, 300], "val": [-1, 300]}), tmp_path / "t", mode="append"
    )
    for dataset in (first, second):
        sought = pa.array([300, 199, 5, 61, 61, -1, 150, 400])
        found_rows = read(dataset, cache).find_each(sought)
        assert found_rows is not None
        addresses, positions = found_rows
        stored = dataset.scanner(columns=["id"], with_row_address=True).to_table()
        at = dict(zip(stored["id"].to_pylist(), stored["_rowaddr"].to_pylist(), strict=True))
        keys = sought.take(pa.array(positions)).to_pylist()
        assert dict(zip(keys, addresses.tolist(), strict=True)) == {
            key: at[key] for key in sought.to_pylist() if key in at
        }


def _whole(kind: pa.DataType) -> pa.DataType:
    return kind if pa.types.is_integer(kind) else pa.int64()
