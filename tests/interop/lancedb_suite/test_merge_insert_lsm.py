# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright The LanceDB Authors

"""Tests for the MemWAL LSM ``merge_insert`` dispatch."""

from datetime import timedelta

import lancedb
import pyarrow as pa
from lancedb._lancedb import LsmWriteSpec
from lancedb.index import FTS, IvfPq

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("value", pa.int64(), nullable=False),
    ]
)


def _reader(ids):
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(ids, type=pa.int64()),
            pa.array(list(range(len(ids))), type=pa.int64()),
        ],
        schema=SCHEMA,
    )
    return pa.RecordBatchReader.from_batches(SCHEMA, [batch])


def _bucket_table(tmp_path):
    """A table with ``id`` as the primary key and a single-bucket LSM spec."""
    db = lancedb.connect(tmp_path, read_consistency_interval=timedelta(seconds=0))
    table = db.create_table("t", _reader([1, 2, 3]))
    table.set_unenforced_primary_key("id")
    # num_buckets = 1: every row routes to the single bucket.
    table.set_lsm_write_spec(LsmWriteSpec.bucket("id", 1))
    return table


def test_lsm_merge_insert_use_lsm_false(tmp_path):
    table = _bucket_table(tmp_path)  # rows id = 1, 2, 3
    # use_lsm(False) opts out: the standard path runs and commits even with a spec.
    result = (
        table.merge_insert("id")
        .when_not_matched_insert_all()
        .use_lsm(False)
        .execute(_reader([3, 4, 5]))
    )
    assert result.num_inserted_rows == 2
    assert table.count_rows() == 5


VECTOR_DIM = 8

VECTOR_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("category", pa.utf8(), nullable=False),
        pa.field("vector", pa.list_(pa.float32(), VECTOR_DIM), nullable=False),
    ]
)


def _vector_reader(rows):
    """Rows are ``(id, category, [f32; VECTOR_DIM])`` tuples."""
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([row[0] for row in rows], type=pa.int64()),
            pa.array([row[1] for row in rows], type=pa.utf8()),
            pa.array([row[2] for row in rows], type=pa.list_(pa.float32(), VECTOR_DIM)),
        ],
        schema=VECTOR_SCHEMA,
    )
    return pa.RecordBatchReader.from_batches(VECTOR_SCHEMA, [batch])


def _vector_table(tmp_path):
    """Base table whose vector column is indexed so its rows are visible to the LSM
    vector scanner (the base arm uses ``fast_search`` — indexed data only), plus an
    unsharded LSM spec that maintains that index for the memtable.

    Rows 1,2 are category ``a``, row 3 is ``b``, and 4..60 are filler ``c`` that
    give the tiny IVF index enough data to train.
    """
    db = lancedb.connect(tmp_path, read_consistency_interval=timedelta(seconds=0))
    rows = [
        (
            i,
            "a" if i in (1, 2) else "b" if i == 3 else "c",
            [float((i * 7 + j) % 13) for j in range(VECTOR_DIM)],
        )
        for i in range(1, 61)
    ]
    table = db.create_table("t", _vector_reader(rows))
    table.set_unenforced_primary_key("id")
    # num_partitions=1 makes the search exhaustive within the single partition
    # (deterministic); num_bits=4 keeps PQ training viable on a tiny dataset.
    table.create_index(
        "vector", config=IvfPq(num_partitions=1, num_sub_vectors=2, num_bits=4)
    )
    index_name = table.list_indices()[0].name
    table.set_lsm_write_spec(
        LsmWriteSpec.unsharded().with_maintained_indexes([index_name])
    )
    return table


def _vector_upsert(table, rows):
    (
        table.merge_insert([])
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(_vector_reader(rows))
    )


def test_lsm_read_vector_sees_memtable(tmp_path):
    table = _vector_table(tmp_path)
    # id 1000 lands in the active memtable, not committed to the base table.
    _vector_upsert(table, [(1000, "a", [1.0] * VECTOR_DIM)])

    query = [1.0] * VECTOR_DIM
    # Vector search auto-routes through the LSM scanner: indexed base ∪ memtable.
    ids = set(table.search(query).limit(100).to_arrow()["id"].to_pylist())
    assert {1, 2, 3} <= ids  # indexed base rows
    assert 1000 in ids  # in-flight memtable row

    # use_lsm(False) bypasses the MemWAL, so the in-flight row is not visible.
    base_ids = set(
        table.search(query).use_lsm(False).limit(100).to_arrow()["id"].to_pylist()
    )
    assert {1, 2, 3} <= base_ids
    assert 1000 not in base_ids


FTS_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("text", pa.utf8(), nullable=False),
    ]
)


def _fts_reader(rows):
    """Rows are ``(id, text)`` tuples."""
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([row[0] for row in rows], type=pa.int64()),
            pa.array([row[1] for row in rows], type=pa.utf8()),
        ],
        schema=FTS_SCHEMA,
    )
    return pa.RecordBatchReader.from_batches(FTS_SCHEMA, [batch])


def test_lsm_read_fts_sees_memtable(tmp_path):
    db = lancedb.connect(tmp_path, read_consistency_interval=timedelta(seconds=0))
    table = db.create_table(
        "t",
        _fts_reader(
            [
                (1, "the quick brown fox"),
                (2, "lazy dog sleeps"),
                (3, "quick red fox"),
            ]
        ),
    )
    table.set_unenforced_primary_key("id")
    # Native FTS index (tantivy is not compatible with the LSM memtable index).
    table.create_index("text", config=FTS())
    index_name = table.list_indices()[0].name
    table.set_lsm_write_spec(
        LsmWriteSpec.unsharded().with_maintained_indexes([index_name])
    )

    # in-flight doc 4 lands in the memtable's maintained FTS index.
    (
        table.merge_insert([])
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(_fts_reader([(4, "brown fox jumps")]))
    )

    # Full-text search auto-routes through the LSM scanner: base ∪ memtable.
    ids = set(
        table.search("fox", query_type="fts", fts_columns="text")
        .limit(10)
        .to_arrow()["id"]
        .to_pylist()
    )
    assert ids == {1, 3, 4}

    # Prefilter restricts the FTS results across both tiers.
    filtered = set(
        table.search("fox", query_type="fts", fts_columns="text")
        .where("id > 1")
        .limit(10)
        .to_arrow()["id"]
        .to_pylist()
    )
    assert filtered == {3, 4}
