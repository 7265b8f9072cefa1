"""What docs/mem-wal.md says of `lance.mem_wal`, beside this package on the same table."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance.mem_wal import (
    CompactedSsTable,
    LsmPointLookupPlanner,
    LsmScanner,
    LsmVectorSearchPlanner,
    ShardWriter,
)

import memwal_sql as mw
from tests.interop.native import folder_of, native_writer, snapshots
from tests.model.merging import manifests

SCHEMA = pa.schema(
    {"id": pa.int64(), "n": pa.int64(), "v": pa.list_(pa.float32(), 2), "body": pa.string()}
)
FIRST, FRESH = 3, 1000
NEAR_FRESH = np.array([FRESH, 1], np.float32)


def rows(keys: list[int], n: int) -> pa.Table:
    vectors = [[float(key), float(n)] for key in keys]
    return pa.table([keys, [n] * len(keys), vectors, [f"word{n}"] * len(keys)], schema=SCHEMA)


def nearest(uri: str) -> list[int]:
    """The key of the nearest row to a fresh one, by Lance."""
    planner = LsmVectorSearchPlanner(lance.dataset(uri), snapshots(uri), "v")
    plan = planner.plan_search(pa.array(NEAR_FRESH), k=1, columns=["id", "_distance"])
    found: list[int] = plan.to_table()["id"].to_pylist()
    return found


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_what_the_page_says_of_both(tmp_path: Path) -> None:
    uri = folder_of(tmp_path)
    table = mw.create_table(uri, SCHEMA, "id")
    with table.writer() as ours:
        ours.upsert(rows(list(range(20)), 0))
        ours.flush()
        table.merge()
    assert nearest(uri) == []  # without an index it finds nothing
    table.create_index("v", "IVF_FLAT", num_partitions=1)
    table.create_index("body", "FTS")
    (region,) = table.snapshot().regions
    writer = native_writer(uri, region.region_id)
    key_marked = lance.dataset(uri).schema
    writer.put(rows([FIRST, FRESH], 1).cast(key_marked))

    # Fresh rows: its writer's own scanner has them, and no other reader of Lance.
    assert writer.lsm_scanner().filter(f"id = {FIRST}").to_table()["n"].to_pylist() == [1]
    dataset = lance.dataset(uri)
    others = (
        dataset.to_table(filter=f"id = {FIRST}"),
        LsmScanner.from_snapshots(dataset, snapshots(uri)).filter(f"id = {FIRST}").to_table(),
        LsmPointLookupPlanner(dataset, snapshots(uri)).plan_lookup(pa.array([FIRST])).to_table(),
    )
    assert [found["n"].to_pylist() for found in others] == [[0]] * 3
    assert nearest(uri) == [19]
    assert dataset.to_table(full_text_query="word1").num_rows == 0
    counted = dataset.sql("SELECT count(*) FROM dataset").build().to_batch_records()
    assert counted[0].column(0).to_pylist() == [20]

    # This package has them in every query.
    assert table.get([FIRST, FRESH])["n"].to_pylist() == [1, 1]
    assert table.vector_search("v", NEAR_FRESH, 1)["id"].to_pylist() == [FRESH]
    assert table.full_text_search("body", "word1").num_rows == 2
    session = mw.SessionContext()
    mw.register(session, "t", table)
    assert mw.sql(session, "SELECT count(*), sum(n) FROM t").to_pydict() == {
        "count(*)": [21],
        "sum(t.n)": [2],
    }

    # A lookup is of one key, and only closing flushes.
    with pytest.raises(ValueError, match="exactly one row"):
        LsmPointLookupPlanner(dataset, snapshots(uri)).plan_lookup(pa.array([1, 2]))
    assert public(ShardWriter) == {
        *("put", "delete", "close", "lsm_scanner"),
        *("stats", "memtable_stats", "shard_id"),
    }
    assert public(LsmScanner) == {
        *("from_snapshots", "project", "filter", "limit", "count_rows"),
        *("to_batch", "to_batches", "to_table", "with_row_address", "with_memtable_gen"),
    }

    # A second writer of the shard ends the first one.
    second = native_writer(uri, region.region_id)
    with pytest.raises(OSError, match="Writer fenced"):
        writer.put(rows([FIRST], 2).cast(key_marked))
    second.put(rows([FIRST], 3).cast(key_marked))
    assert table.get(FIRST)["n"].to_pylist() == [3]

    # The caller compacts, and nothing deletes the files.
    second.delete(pa.table({"id": [FRESH]}))
    second.close()
    (flushed,) = manifests(uri)[region.region_id].flushed_generations[-1:]
    folder = f"{uri}/_mem_wal/{region.region_id}/{flushed.path}"
    found = lance.dataset(folder).to_table()
    gone = found.filter(pc.field("_tombstone"))["id"].to_pylist()
    live = found.filter(~pc.field("_tombstone")).drop_columns("_tombstone")
    lance.dataset(uri).delete(f"id IN ({', '.join(map(str, gone))})")
    merge = lance.dataset(uri).merge_insert("id").when_matched_update_all()
    merge = merge.when_not_matched_insert_all()
    merge = merge.mark_sstables_as_compacted(
        [CompactedSsTable(str(region.region_id), flushed.generation)]
    )
    merge.execute(live)
    assert table.get([FIRST, FRESH])["n"].to_pylist() == [3]
    assert lance.dataset(uri).count_rows() == table.count_rows() == 20
    lance.dataset(uri).cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert Path(folder).is_dir()
