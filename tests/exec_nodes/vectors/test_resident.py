"""Vectors in memory serve every version of a table: only what is new is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from exec_nodes.base.columns import Filter, RowAddresses
from exec_nodes.base.tasks import background_by
from exec_nodes.resident.store import ENTRY_BYTES, ResidentStore
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.vectors.column import Metric, code_bytes
from exec_nodes.vectors.nearest import NearestQuery
from exec_nodes.vectors.resident import VectorReader, is_resident
from exec_nodes.vectors.search import SourceSearch
from planner.model import TableInfo
from tests.exec_nodes.vectors.vectors import Matrix, arrow, measured
from tests.model.resident import another_store

DIMENSION = 4
RANDOM = np.random.default_rng(3)
NONE: RowAddresses = np.empty(0, np.uint64)


@pytest.fixture(autouse=True)
def vectors() -> Iterator[ResidentStore]:
    """Nothing is held when a test begins, and what is done in the background is done at once."""
    with another_store() as cache, background_by(lambda call: call()):
        yield cache


class Table:
    """A Lance table and what is in it, by id."""

    def __init__(self, folder: Path, rows: int, **options: Any) -> None:
        self.place = str(folder)
        self.rows: dict[int, Matrix] = {}
        self._write(range(rows), mode="create", **options)

    def source(self, version: int | None = None) -> LanceSource:
        dataset = lance.dataset(self.place, version=version)
        info = TableInfo(dataset.schema, ("id",))
        return LanceSource.base(dataset, info, etag=str(dataset.version))

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


def search(
    source: LanceSource, query: Matrix, most: int = 10, filters: tuple[Filter, ...] = ()
) -> list[int]:
    asked = NearestQuery("v", query[np.newaxis], most, "l2")
    found = SourceSearch(source, asked, filters, None).nearest(most, NONE)
    ids: list[int] = source.rows_at(found.addresses, ["id"])["id"].to_pylist()
    return ids


def query() -> Matrix:
    return RANDOM.normal(size=DIMENSION).astype(np.float32)


def test_the_codes_of_each_metric_are_counted(tmp_path: Path, vectors: ResidentStore) -> None:
    source = Table(tmp_path / "t", 100).source()
    metrics: list[Metric] = ["l2", "cosine", "dot"]
    for number, metric in enumerate(metrics, start=1):
        asked = NearestQuery("v", query()[np.newaxis], 5, metric)
        SourceSearch(source, asked, (), None).nearest(5, NONE)
        row = 4 * DIMENSION + 8 + number * code_bytes(DIMENSION)
        assert vectors.kinds()["vectors"].bytes == ENTRY_BYTES + 100 * row


@pytest.mark.parametrize(("metric", "kind"), [("hamming", np.uint8), ("l2", np.float32)])
def test_what_is_read_to_be_kept_is_kept(tmp_path: Path, metric: Metric, kind: type) -> None:
    """Whether vectors fit is told before they are read."""
    matrix = RANDOM.integers(0, 255, (100, 64)).astype(kind)
    dataset = lance.write_dataset(pa.table({"id": range(100), "v": arrow(matrix)}), tmp_path / "t")
    source = LanceSource.base(dataset, TableInfo(dataset.schema, ("id",)), etag="e")
    needed = VectorReader(source, "v", frozenset([metric])).row_bytes * source.rows
    for share in (0.5, 0.8, 0.99, 1.01, 1.3, 2):
        with another_store(int(4 * needed * share)):
            asked = NearestQuery("v", matrix[:1], 5, metric)
            SourceSearch(source, asked, (), None).nearest(5, NONE)
            assert is_resident(source, "v") == (share > 1)


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
    wider = LanceSource.base(source.dataset, info, etag="wider")
    asked = NearestQuery("w", np.ones((1, 2), np.float32), 5, "l2")
    assert len(SourceSearch(wider, asked, (), None).nearest(5, NONE)) == 0
