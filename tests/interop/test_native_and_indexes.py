"""Generations with vector and full-text indexes, and indexes that are maintained, as native code
finds them: design, rule of correctness 9."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.mem_wal import LsmVectorSearchPlanner

import memwal_sql as mw
from tests.index.tables import rows, schema_of
from tests.interop.native import (
    folder_of,
    native_lookup,
    native_scan,
    native_scan_with_tail,
    snapshots,
)


@pytest.fixture
def table(tmp_path: Path) -> mw.Table:
    uri = folder_of(tmp_path)
    lance.write_dataset(rows(0, 600), uri, schema=schema_of())
    table = mw.enable(uri, primary_key="id")
    table.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=4)
    table.create_index("body", "FTS")
    with table.writer() as writer:
        writer.upsert(rows(500, 700))
        writer.flush()
        writer.upsert(rows(690, 720))
        writer.delete([1])
    return table


def test_native_reads_generations_with_indexes(table: mw.Table) -> None:
    found = native_scan(table.uri)
    assert sorted(found["id"].to_pylist()) == list(range(700))
    assert (
        native_lookup(table.uri, pa.array([650]))["body"].to_pylist()
        == rows(650, 651)["body"].to_pylist()
    )


def test_native_searches_the_vectors_of_our_generations(table: mw.Table) -> None:
    planner = LsmVectorSearchPlanner(lance.dataset(table.uri), snapshots(table.uri), "v")
    for n in (100, 650):
        query = rows(n, n + 1)["v"].combine_chunks().flatten()
        found = planner.plan_search(query, k=1, nprobes=2).to_table()
        assert found["id"].to_pylist() == [n]


def test_native_takes_over_a_region_with_maintained_indexes(table: mw.Table) -> None:
    (region,) = table.snapshot().regions
    found = native_scan_with_tail(table.uri, region.region_id)
    assert sorted(found["id"].to_pylist()) == [0, *range(2, 720)]


def test_we_search_what_native_code_flushed(table: mw.Table) -> None:
    """Native generations have the vector index too, or none: either way the rows are found."""
    (region,) = table.snapshot().regions
    new = rows(800, 810)
    with lance.dataset(table.uri).mem_wal_writer(str(region.region_id)) as writer:
        writer.put(new.to_batches()[0])
    query = np.asarray(new["v"][3].as_py(), np.float32)
    assert table.vector_search("v", query, 1)["id"].to_pylist() == [803]
    assert table.full_text_search("body", "row803")["id"].to_pylist() == [803]
