"""Readers of several versions share what is kept in memory, and read what a fresh one reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pytest

import memwal_sql as mw
from exec_nodes.resident.admission import Admission
from tests.read.life import KEYS, SCHEMA, WIDTH, Life, fresh, seen
from tests.soak import SOAK


@pytest.mark.parametrize("seed", range(SOAK))
def test_what_is_kept_serves_every_version(tmp_path: Path, seed: int, within: Any) -> None:
    within(Admission.set(lookup=1 << 30))  # keys are kept at once
    life = Life(tmp_path, seed)
    readers: dict[int | None, mw.Table] = {None: life.table}
    for number in range(9):
        what = life.step()
        if number % 4 == 3:
            version = life.table.snapshot_regions()
            readers[version] = mw.open_table(life.uri, version=version)
        keys = life.random.sample(range(KEYS + 500), 20)
        query = life.numbers.normal(size=WIDTH).tolist()
        for version, reader in readers.items():
            message = f"seed {seed}, step {number} ({what}), version {version}"
            assert seen(reader, keys, query) == fresh(life.uri, version, keys, query), message


@pytest.mark.parametrize("change", ["merge", "plain Lance"])
def test_a_reader_made_before_a_change_has_a_row_of_each_key(tmp_path: Path, change: str) -> None:
    """Keys in memory that were read since are also those of rows that only it still has."""
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    life = Life(tmp_path / "other", 1)
    with table.writer() as writer:
        writer.upsert(life.rows(range(2_000)))
        writer.flush()
        table.merge()
        filters = ["id = 5", "id IN (5, 6)", "id BETWEEN 5 AND 6"]
        readers = [table.scan(columns=["id"], filter=one) for one in filters]
        if change == "merge":
            writer.upsert(life.rows([5]))
            writer.flush()
            table.merge()
        else:
            lance.dataset(table.uri).update({"val": "'new'"}, where="id = 5")
        for _ in range(8):
            assert table.get([7]).num_rows == 1
    found = [sorted(reader.read_all()["id"].to_pylist()) for reader in readers]
    assert found == [[5], [5, 6], [5, 6]]
