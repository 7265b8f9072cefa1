"""A merged table is an ordinary Lance table: plain pylance reads the merged rows, and the native
MemWAL reader the rest; what native code wrote is merged as well (issue "What must be shown")."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID, uuid4

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.interop.native import (
    create_native,
    folder_of,
    native_lookup,
    native_scan,
    native_schema,
    native_writer,
    wait_for_flushes,
)
from tests.maintain.merging_tables import in_base, merger_of, progress_of, rows_of
from tests.model.merging import manifests, merge_one
from tests.model.writing import merge_rows

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("val", pa.int64())])
NATIVE = native_schema(SCHEMA, ["id"])
BASE = dict.fromkeys(range(10), 0)


def _rows(values: dict[int, int]) -> pa.Table:
    return pa.table({"id": list(values), "val": list(values.values())}, schema=NATIVE)


def _keys(*ids: int) -> pa.Table:
    return pa.table({"id": ids}, schema=pa.schema([NATIVE.field("id")]))


def _native_rows(uri: str) -> dict[int, int]:
    found = native_scan(uri)
    rows = dict(zip(found["id"].to_pylist(), found["val"].to_pylist(), strict=True))
    assert len(rows) == found.num_rows
    return rows


def test_plain_lance_reads_the_merged_rows_and_native_the_rest(tmp_path: Path) -> None:
    uri = folder_of(tmp_path)
    lance.write_dataset(_rows(BASE), uri)
    table = mw.enable(uri, primary_key="id", regions=[mw.identity("id")])
    with table.writer(durable=False) as writer:
        writer.upsert(_rows({1: 1, 2: 1, 20: 1}))
        writer.delete([3, 4])
        writer.flush()
    merger_of(table, max_pass_bytes=1)()
    merged = {**BASE, 1: 1, 2: 1, 20: 1}
    del merged[3], merged[4]
    assert in_base(uri) == merged == _native_rows(uri)
    assert lance.dataset(uri).count_rows("val = 1") == 3
    with table.writer(durable=False) as writer:
        writer.upsert(_rows({1: 2, 3: 2}))
        writer.delete([20])
        writer.flush()
    rest = {**merged, 1: 2, 3: 2}
    del rest[20]
    assert in_base(uri) == merged
    assert _native_rows(uri) == rest == rows_of(mw.open_table(uri))
    assert native_lookup(uri, pa.array([1]))["val"].to_pylist() == [2]
    assert native_lookup(uri, pa.array([2]))["val"].to_pylist() == [1]


def test_plain_lance_may_use_a_merged_table_as_any_other(tmp_path: Path) -> None:
    """Indexes, versions, tags, compaction and clean-up are Lance's own."""
    uri = folder_of(tmp_path)
    lance.write_dataset(_rows(BASE), uri)
    table = mw.enable(uri, primary_key="id")
    merge_rows(table, _rows({1: 1, 11: 1}), durable=False)
    table.build_indexes()
    dataset = lance.dataset(uri)
    dataset.tags.create("merged", dataset.version)
    dataset.optimize.compact_files()
    lance.dataset(uri).validate()
    assert lance.dataset(uri, version="merged").count_rows() == 11
    assert lance.dataset(uri).to_table(filter="id = 11")["val"].to_pylist() == [1]
    assert rows_of(mw.open_table(uri)) == {**BASE, 1: 1, 11: 1}


@pytest.mark.parametrize("mode", ["unsharded", "manual"])
def test_generations_of_native_writers_are_merged(mode: str, tmp_path: Path) -> None:
    """They hold a key more than once, all but its last row masked by a deletion vector."""
    uri = folder_of(tmp_path)
    arguments = {"unsharded": True} if mode == "unsharded" else {}
    create_native(uri, _rows(BASE), ["id"], **arguments)
    region_id = uuid4()
    writer = native_writer(uri, region_id, max_memtable_rows=6)
    writer.put(_rows({1: 1, 2: 1}))
    writer.put(_rows({1: 2, 20: 1, 30: 1}))
    writer.delete(_keys(3, 77, 30))
    wait_for_flushes(writer, 1)
    writer.put(_rows({1: 3}))
    writer.delete(_keys(1, 20, 4))
    writer.put(_rows({1: 4, 3: 2, 21: 2}))
    writer.close()  # which flushes the rest
    expected = {**BASE, 1: 4, 2: 1, 3: 2, 21: 2}
    del expected[4]
    assert _native_rows(uri) == expected
    flushed = manifests(uri)[region_id].flushed_generations
    assert mw.open_table(uri).merge() == len(flushed) >= 2
    assert in_base(uri) == expected == _native_rows(uri) == rows_of(mw.open_table(uri))


def test_native_and_our_merges_take_turns(tmp_path: Path) -> None:
    """The marks of our passes are no matter to a client that knows only regions."""
    uri = folder_of(tmp_path)
    lance.write_dataset(_rows(BASE), uri)
    table = mw.enable(uri, primary_key="id")
    region: UUID | None = None
    for turn in range(1, 5):
        with table.writer(durable=False) as writer:
            writer.upsert(_rows({1: turn, 10 + turn: turn}))
            writer.delete([turn + 1])
            writer.flush()
        (region,) = manifests(uri)
        if turn % 2:
            assert table.merge() == 1
        else:
            assert merge_one(uri, region, ["id"]) == turn
        assert progress_of(uri) == {str(region): turn}
    assert in_base(uri) == {0: 0, 1: 4, 6: 0, 7: 0, 8: 0, 9: 0, 11: 1, 12: 2, 13: 3, 14: 4}
    assert rows_of(mw.open_table(uri)) == in_base(uri)
