from __future__ import annotations

import os
import shutil
from operator import call
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lance
import numpy as np
import pyarrow as pa
import pytest

from exec_nodes.base.columns import KEY_POSITION, ROW_ADDRESS, TOMBSTONE
from exec_nodes.base.errors import RepairError, RetryError, SourceGoneError
from exec_nodes.base.tasks import background_by
from exec_nodes.keys.keys import KeyBatch
from exec_nodes.resident import keys as resident_keys
from exec_nodes.resident.admission import Admission
from exec_nodes.resident.store import ResidentStore
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.sources.source import Source
from planner.model import TableInfo
from tests.each import each
from tests.exec_nodes.kinds import COLUMNS
from tests.exec_nodes.tables import (
    DELETED,
    INFO,
    SCHEMA,
    lance_base,
    lance_generation,
    memtable,
    where,
)


def keys(*values: int) -> KeyBatch:
    return KeyBatch(pa.table({"id": pa.array(values, pa.int64())}))


@pytest.fixture(params=["decoded", "through Lance", "by keys in memory"])
def small(request: pytest.FixtureRequest, within: Any) -> None:
    """Generations are read in each way: kept decoded, scanned by Lance, and by keys and columns
    that are kept from the first lookup on."""
    if request.param != "decoded":
        within(Admission.set(small=-1))
    if request.param == "by keys in memory":
        within(Admission.set(lookup=1 << 30, fetch=1 << 30))
        within(background_by(call))


@pytest.mark.usefixtures("small")
def test_take_and_last_find_the_last_row_of_each_key(tmp_path: Path) -> None:
    writes = [(1, 1), (2, 2), (1, 3), (4, DELETED)]
    generation = lance_generation(tmp_path, writes, 1)
    for source in (generation, generation, generation, memtable(writes, 1)):
        found = source.take(keys(4, 9, 1, 2, 1), ["val"])
        rows = {
            position: (value, deleted)
            for value, deleted, position in zip(
                *(found[c].to_pylist() for c in ("val", TOMBSTONE, KEY_POSITION)), strict=True
            )
        }
        assert len(rows) == found.num_rows == 3
        assert rows[0] == (None, True)
        assert rows[3] == (2, False)
        assert rows.get(2, rows.get(4)) == (3, False)
        assert source.take(keys(1), ["val", "id"])["val"].to_pylist() == [3]
        assert source.take(keys(77), ["s"]).num_rows == 0
        assert source.last(keys(9), ["val"]) is None
        for key, expected in {1: (3, False), 2: (2, False), 4: (None, True)}.items():
            row, deleted = source.last(keys(key), ["val"]) or (None, None)
            assert row is not None and (row["val"][0].as_py(), deleted) == expected


@pytest.mark.usefixtures("small")
def test_scan_pushes_projection_filters_and_limit(tmp_path: Path) -> None:
    generation = lance_generation(tmp_path, [(i, i * 10) for i in range(20)], 1)
    filters = (where("val", ">", 50), where("s", "!=", "text 70"))
    batches = list(generation.scan(["id"], filters, None))
    assert {tuple(b.schema.names) for b in batches} == {("id", ROW_ADDRESS)}
    table = pa.Table.from_batches(batches)
    assert table["id"].to_pylist() == [6, *range(8, 20)]
    assert table[ROW_ADDRESS].to_pylist() == table["id"].to_pylist()
    limited = list(generation.scan(["id"], filters, 2))
    assert 2 <= sum(b.num_rows for b in limited) <= 13


@each("indexed", [False, True])
@each("kind", COLUMNS)
def test_every_key_type_is_looked_up_exactly(tmp_path: Path, kind: str, indexed: bool) -> None:
    column = COLUMNS[kind]
    schema = pa.schema([pa.field("My key", column.type, False), pa.field("v", pa.int64())])
    table = pa.table([column, pa.array(np.arange(len(column)))], schema=schema)
    dataset = lance.write_dataset(table, tmp_path / "t")
    if indexed:
        dataset.create_scalar_index("My key", "BTREE")
    info = TableInfo(schema, ("My key",))
    base = LanceSource.base(dataset, info, etag="x", resident=ResidentStore())
    for place in range(len(column)):
        asked = KeyBatch(table.select(["My key"]).slice(place, 1))
        assert base.take(asked, ["v"])["v"].to_pylist() == [place]
        row, deleted = base.last(asked, ["v", "My key"]) or (None, None)
        assert row is not None and not deleted
        assert row.select(["My key"]) == asked.table and row["v"].to_pylist() == [place]
    every = base.take(KeyBatch(table.select(["My key"])), ["v"])
    assert sorted(zip(every["v"].to_pylist(), every[KEY_POSITION].to_pylist(), strict=True)) == [
        (place, place) for place in range(len(column))
    ]


def test_composite_keys_match_as_a_whole(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("a", pa.int64(), False), pa.field("b", pa.string(), False), ("v", pa.int64())]
    )
    rows = [(a, b) for a in range(4) for b in ("x", "y'", "")]
    table = pa.table(
        [[a for a, _ in rows], [b for _, b in rows], list(range(len(rows)))], schema=schema
    )
    dataset = lance.write_dataset(table, tmp_path / "t")
    base = LanceSource.base(
        dataset, TableInfo(schema, ("b", "a")), etag="x", resident=ResidentStore()
    )
    asked = pa.table({"b": ["x", "y'", "z"], "a": [3, 0, 1]})
    found = base.take(KeyBatch(asked), ["v"])
    assert sorted(zip(found[KEY_POSITION].to_pylist(), found["v"].to_pylist(), strict=True)) == [
        (0, rows.index((3, "x"))),
        (1, rows.index((0, "y'"))),
    ]


def test_the_base_is_read_in_parts_that_add_up(tmp_path: Path) -> None:
    base = lance_base(tmp_path, [(i, i) for i in range(1000)], max_rows_per_file=100)
    assert base.parts > 1 or os.cpu_count() == 1
    found = [
        value
        for part in range(base.parts)
        for batch in base.scan(["id"], (), None, part)
        for value in batch["id"].to_pylist()
    ]
    assert sorted(found) == list(range(1000))


def test_a_damaged_bloom_filter_is_an_error_that_names_it(tmp_path: Path) -> None:
    generation = LanceSource.flushed(
        "some/a_gen_3",
        region="a",
        generation=3,
        info=INFO,
        resident=ResidentStore(),
        bloom=lambda: b"xx",
    )
    with pytest.raises(RepairError, match=r"some/a_gen_3/bloom_filter\.bin"):
        generation.might_contain(keys(1))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("opened", [False, True])
def test_a_collected_generation_is_never_skipped(tmp_path: Path, opened: bool) -> None:
    """Protocol rule 14: a missing folder means again, with a typed, retryable error."""
    generation = lance_generation(tmp_path, [(1, 1)], 1)
    if opened:
        assert generation.rows + generation.parts == 2
    shutil.rmtree(generation.identity[1])

    def scan(source: Source) -> None:
        list(source.scan(["id"], (), None))

    for read in (scan, lambda s: s.keys(), lambda s: s.take(keys(1), ["val"])):
        with pytest.raises(SourceGoneError, match=r"region_a\[gen=1\]") as raised:
            read(generation)
        assert isinstance(raised.value, RetryError)


def test_the_last_row_of_a_key_in_a_generation_is_found_by_keys_in_memory(
    tmp_path: Path, within: Any
) -> None:
    """Native code leaves older rows of a key in a generation."""
    within(Admission.set(small=-1, lookup=1 << 30))
    within(background_by(lambda call: call()))
    writes = [(5, 1), (1, 1), (2, 2), (1, 3), (4, 4), (4, DELETED), (1, 5), (2, 6)]
    source = lance_generation(tmp_path, writes, 1)
    found = {}
    assert source.last(keys(5), ["val"]) is not None
    with patch.object(resident_keys, "key_condition", side_effect=AssertionError):
        for key in (1, 2, 4, 5, 9):
            row = source.last(keys(key), ["val", "id"])
            if row is not None:
                found[key] = row[0].to_pydict(), row[1]
    assert found == {
        1: ({"val": [5], "id": [1]}, False),
        2: ({"val": [6], "id": [2]}, False),
        4: ({"val": [None], "id": [4]}, True),
        5: ({"val": [1], "id": [5]}, False),
    }


def test_a_generation_without_a_column_of_now_is_looked_into_all_the_same(
    tmp_path: Path, within: Any
) -> None:
    within(Admission.set(small=-1))
    source = lance_generation(tmp_path, [(1, 3)], 1)
    source.info = TableInfo(SCHEMA.append(pa.field("later", pa.int8())), ("id",))
    row, deleted = source.last(keys(1), ["later", "val"]) or (None, None)
    assert row is not None and (row.to_pydict(), deleted) == ({"later": [None], "val": [3]}, False)
