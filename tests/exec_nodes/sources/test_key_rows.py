"""Keys kept in memory find the rows that Lance's own lookup finds."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from exec_nodes.sources import key_rows
from exec_nodes.sources.key_rows import KeyRows, is_integral


def _dataset(folder: Path, keys: Any) -> Any:
    table = pa.table({"id": keys, "val": pa.array(range(len(keys)))})
    return lance.write_dataset(table, folder, max_rows_per_file=70)


@pytest.mark.parametrize("ascending", [True, False])
def test_each_key_is_found_across_fragments_and_deleted_rows(
    tmp_path: Path, ascending: bool
) -> None:
    keys = np.arange(0, 600, 3) if ascending else np.random.default_rng(1).permutation(200) * 3
    dataset = _dataset(tmp_path / "t", pa.array(keys))
    dataset.delete("id % 7 = 0")
    places = KeyRows(dataset, "id")
    for key in range(-1, 602):
        row = places.take(key, ["val", "id"])
        expected = dataset.to_table(columns=["val", "id"], filter=f"id = {key}")
        assert (row is None) == (expected.num_rows == 0)
        if row is not None:
            assert row.equals(expected)


def test_dates_and_the_ends_of_the_range_are_found(tmp_path: Path) -> None:
    days = [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)]
    assert is_integral(pa.date32())
    places = KeyRows(_dataset(tmp_path / "d", pa.array(days)), "id")
    assert places.take(-1, ["val"]).to_pydict() == {"val": [0]}
    ends = pa.array([2**64 - 1, 0], pa.uint64())
    places = KeyRows(_dataset(tmp_path / "u", ends), "id")
    assert places.take(2**64 - 1, ["val"]).to_pydict() == {"val": [0]}
    assert places.take(1, ["val"]) is None


def test_an_empty_table_has_no_key(tmp_path: Path) -> None:
    assert (
        KeyRows(_dataset(tmp_path / "e", pa.array([], pa.int64())), "id").take(1, ["val"]) is None
    )


def test_another_version_reads_only_the_keys_of_new_fragments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After merges, each version finds its own rows: replaced, deleted and new ones."""
    random = np.random.default_rng(3)
    dataset = _dataset(tmp_path / "t", pa.array(random.permutation(200)))
    versions = [dataset.checkout_version(dataset.version)]
    held = [KeyRows(dataset, "id")]
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
        held.append(KeyRows(versions[-1], "id", held[-1].known))
    assert read == [[3], [4], [5]]
    # What a newer version knows serves an older one, too.
    held.append(KeyRows(versions[1], "id", held[-1].known))
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
    assert KeyRows(dataset, "id", held[-1].known).take(0, ["val"]) is None
    assert read == [[6]]
