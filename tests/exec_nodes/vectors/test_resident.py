"""Vectors in memory serve every version of a table: only what is new is read."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch
from weakref import ref

import lance
import numpy as np
import pyarrow as pa
import pytest

from exec_nodes.base.columns import RowAddresses
from exec_nodes.resident.store import Key, ResidentStore
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.vectors import resident as held
from exec_nodes.vectors.query import NearestQuery
from exec_nodes.vectors.search import SourceSearch
from planner.model import TableInfo
from tests.exec_nodes.vectors.vectors import Matrix, arrow, measured

DIMENSION = 4
RANDOM = np.random.default_rng(3)
NONE: RowAddresses = np.empty(0, np.uint64)


@pytest.fixture(autouse=True)
def vectors(monkeypatch: pytest.MonkeyPatch) -> Iterator[ResidentStore]:
    """Nothing is held when a test begins, and what is done in the background is done at once."""
    cache = ResidentStore()
    monkeypatch.setattr(held, "STORE", cache)
    monkeypatch.setattr(held, "in_background", lambda call: call())
    yield cache


class Table:
    """A Lance table and what is in it, by id."""

    def __init__(self, folder: Path, rows: int, **options: Any) -> None:
        self.place = str(folder)
        self.rows: dict[int, Matrix] = {}
        self._write(range(rows), mode="create", **options)

    def merge(self, ids: Sequence[int]) -> None:
        """Replace and insert rows."""
        found = self._rows(ids)
        merge = lance.dataset(self.place).merge_insert("id").when_matched_update_all()
        merge.when_not_matched_insert_all().execute(found)

    def delete(self, ids: Sequence[int]) -> None:
        lance.dataset(self.place).delete(f"id IN ({', '.join(map(str, ids))})")
        for one in ids:
            self.rows.pop(one, None)

    def source(self, version: int | None = None) -> LanceSource:
        dataset = lance.dataset(self.place, version=version)
        info = TableInfo(dataset.schema, ("id",))
        return LanceSource.base(dataset, info, etag=str(dataset.version), resident=ResidentStore())

    def expected(self, query: Matrix, most: int) -> list[int]:
        """The nearest rows; equally near ones don't occur."""
        ids = list(self.rows)
        away = measured("l2", np.stack([self.rows[one] for one in ids]), query)
        return [ids[place] for place in np.argsort(away, kind="stable")[:most]]

    def _write(self, ids: Sequence[int] | range, **options: Any) -> None:
        lance.write_dataset(self._rows(ids), self.place, **options)

    def _rows(self, ids: Sequence[int] | range) -> pa.Table:
        matrix = RANDOM.normal(size=(len(ids), DIMENSION)).astype(np.float32)
        self.rows.update(zip(ids, matrix, strict=True))
        return pa.table({"id": pa.array(ids, pa.int64()), "v": arrow(matrix)})


def search(source: LanceSource, query: Matrix, most: int = 10) -> list[int]:
    asked = NearestQuery("v", query[np.newaxis], most, "l2")
    found = SourceSearch(source, asked, (), None).nearest(most, NONE)
    ids: list[int] = source.rows_at(found.addresses, ["id"])["id"].to_pylist()
    return ids


def query() -> Matrix:
    return RANDOM.normal(size=DIMENSION).astype(np.float32)


def test_versions_that_come_and_go(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", 3000, max_rows_per_file=1000)
    old, rows = table.source(), dict(table.rows)
    for step in range(14):
        ids = RANDOM.choice(3500, 60, replace=False).tolist()
        table.merge(ids)
        table.delete(RANDOM.choice(3500, 20, replace=False).tolist())
        if step == 9:
            lance.dataset(table.place).optimize.compact_files(target_rows_per_fragment=1500)
        asked = query()
        source = table.source()
        assert search(source, asked) == table.expected(asked, 10), step
        now, table.rows = table.rows, rows
        assert search(old, asked) == table.expected(asked, 10), "an older version has its own rows"
        table.rows = now


def test_only_what_is_new_is_read(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", 2000, max_rows_per_file=1000)
    search(table.source(), query())
    table.merge(range(100, 150))
    later = table.source()
    with patch.object(LanceSource, "whole_column", autospec=True) as read:
        read.side_effect = _whole_column
        search(later, query())
        search(later, query())
    ((_, _, fragments),) = (call.args for call in read.call_args_list)
    assert [fragment.physical_rows for fragment in fragments] == [50]


_whole_column = LanceSource.whole_column


def test_many_runs_become_one(tmp_path: Path, vectors: ResidentStore) -> None:
    table = Table(tmp_path / "t", 500)
    search(table.source(), query())
    for start in range(held._MOST_RUNS + 1):
        table.merge(range(start * 10, start * 10 + 5))
        asked = query()
        assert search(table.source(), asked) == table.expected(asked, 10)
    runs = vectors.get(Key("vectors", (table.source().place,), 1))
    assert runs is not None
    assert len(runs) <= 2
    asked = query()
    assert search(table.source(), asked) == table.expected(asked, 10)


def test_a_share_of_the_fragments(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", 2000, max_rows_per_file=1000)
    whole = table.source()
    asked = query()
    assert search(whole, asked) == table.expected(asked, 10)
    table.rows = {one: row for one, row in table.rows.items() if one >= 1000}
    assert search(whole.share(frozenset({1})), asked) == table.expected(asked, 10)


def test_columns_that_swapped_their_names(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", 300)
    asked = query()
    first = search(table.source(), asked)
    dataset = lance.dataset(table.place)
    other = RANDOM.normal(size=(300, DIMENSION)).astype(np.float32)
    dataset.merge(pa.table({"id": range(300), "w": arrow(other)}), "id")
    assert search(table.source(), asked) == first
    for old, new in (("v", "t"), ("w", "v"), ("t", "w")):
        lance.dataset(table.place).alter_columns({"path": old, "name": new})
    table.rows = dict(enumerate(other))
    assert search(table.source(), asked) == table.expected(asked, 10)


def test_a_column_that_the_rows_do_not_have(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", 10)
    source = table.source()
    info = TableInfo(
        source.dataset.schema.append(pa.field("w", arrow(np.ones((1, 2))).type)), ("id",)
    )
    wider = LanceSource.base(source.dataset, info, etag="wider", resident=ResidentStore())
    asked = NearestQuery("w", np.ones((1, 2), np.float32), 5, "l2")
    assert len(SourceSearch(wider, asked, (), None).nearest(5, NONE)) == 0


def test_vectors_that_were_evicted_are_gone(tmp_path: Path, vectors: ResidentStore) -> None:
    table = Table(tmp_path / "t", 300)
    search(table.source(), query())
    (run,) = vectors.get(Key("vectors", (table.source().place,), 1)) or ()
    gone = ref(run)
    del run
    vectors.evict_where("vectors", lambda _: True)
    gc.collect()
    assert gone() is None
