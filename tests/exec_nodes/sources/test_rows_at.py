"""Reading rows by address, and the addresses of rows that match."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from exec_nodes.resident.admission import Admission
from exec_nodes.resident.store import ResidentStore
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.sources.source import Source
from planner.model import TableInfo
from tests.exec_nodes.tables import (
    INFO,
    SCHEMA,
    lance_base,
    lance_generation,
    memtable,
    stored,
    where,
)

WRITES = [(i, i * 10) for i in range(50)]


def small(path: Path) -> Source:
    return lance_generation(path, WRITES, 1)


def large(path: Path) -> Source:
    return lance_base(path, WRITES, max_rows_per_file=20)


def in_memory(path: Path) -> Source:
    return memtable(WRITES, 1)


def with_stable_row_ids(path: Path) -> Source:
    rows = stored([(-1, 0), *WRITES]).drop(["_tombstone"])
    dataset = lance.write_dataset(
        rows, path / "t", max_rows_per_file=20, enable_stable_row_ids=True
    )
    dataset.delete("id < 0")
    dataset.optimize.compact_files()
    return LanceSource.base(lance.dataset(path / "t"), INFO, etag="", resident=ResidentStore())


SOURCES = pytest.mark.parametrize("make", [small, large, in_memory, with_stable_row_ids])


@SOURCES
def test_rows_come_in_the_order_asked(tmp_path: Path, make: Callable[[Path], Source]) -> None:
    source = make(tmp_path)
    held = source.matching(())
    asked = [40, 3, 3, 21, 0]
    found = source.rows_at(held[asked], ["val", "id"])
    assert found.column_names == ["val", "id"]
    assert found["id"].to_pylist() == asked
    assert found["val"].to_pylist() == [i * 10 for i in asked]
    assert source.rows_at(held[:0], ["s"]).num_rows == 0


@SOURCES
def test_matching_rows_are_found_in_order(tmp_path: Path, make: Callable[[Path], Source]) -> None:
    source = make(tmp_path)
    held = source.matching(())
    assert len(held) == 50
    assert (held[1:] > held[:-1]).all()
    found = source.matching((where("val", ">", 200), where("s", "!=", "text 300")))
    ids = source.rows_at(found, ["id"])["id"].to_pylist()
    assert ids == [i for i in range(21, 50) if i != 30]


@SOURCES
def test_lance_never_sees_a_filter_it_cannot_take(
    tmp_path: Path, make: Callable[[Path], Source], within: Any
) -> None:
    within(Admission.set(small=-1))
    source = make(tmp_path)
    odd = replace(where("val", "=", 130), lance=None)
    found = source.matching((odd, where("id", "<", 20)))
    assert source.rows_at(found, ["id"])["id"].to_pylist() == [13]
    assert [b["id"].to_pylist() for b in source.scan(["id"], (odd,), 1)] == [[13]]


def test_columns_that_the_files_lack_are_null(tmp_path: Path) -> None:
    wider = TableInfo(SCHEMA.append(pa.field("later", pa.float32())), ("id",))
    dataset = lance.write_dataset(stored(WRITES).drop(["_tombstone"]), tmp_path / "t")
    source = LanceSource.base(dataset, wider, etag="", resident=ResidentStore())
    rows = np.array([2, 1], np.uint64)
    assert source.rows_at(rows, ["later", "id"]).to_pydict() == {"later": [None] * 2, "id": [2, 1]}
    alone = source.rows_at(rows, ["later"])
    assert alone.schema == pa.schema([wider.schema.field("later")])
    assert pc.sum(alone["later"].is_null()).as_py() == 2
