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

from exec_nodes.resident.admission import Admission
from exec_nodes.resident.store import ResidentStore
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.sources.source import Source
from planner.model import TableInfo
from tests.each import each
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


@each("make", [small, large, in_memory, with_stable_row_ids])
def test_rows_are_read_by_address_and_addresses_by_filter(
    tmp_path: Path, make: Callable[[Path], Source], within: Any
) -> None:
    source = make(tmp_path)
    every = source.matching(())
    assert len(every) == 50
    assert (every[1:] > every[:-1]).all()
    asked = [40, 3, 3, 21, 0]
    rows = source.rows_at(every[asked], ["val", "id"])
    assert rows.column_names == ["val", "id"]
    assert rows.to_pydict() == {"val": [i * 10 for i in asked], "id": asked}
    assert source.rows_at(every[:0], ["s"]).num_rows == 0
    some = source.matching((where("val", ">", 200), where("s", "!=", "text 300")))
    ids = source.rows_at(some, ["id"])["id"].to_pylist()
    assert ids == [i for i in range(21, 50) if i != 30]
    # A filter that Lance cannot take is never given to it.
    within(Admission.set(small=-1))
    odd = replace(where("val", "=", 130), lance=None)
    (address,) = source.matching((odd, where("id", "<", 20)))
    assert address == every[13]
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
