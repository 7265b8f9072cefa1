"""Batch writes and reads: rows equal a plain dict, whatever tasks do."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import memwal_sql as mw
from memwal_sql.spark import repartition_by_region
from tests.model.writing import upsert_rows
from tests.spark.frames import frame, load, refusal, rows, save, twice

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})


def test_a_frame_becomes_a_table_and_comes_back(spark: SparkSession, uri: str) -> None:
    save(frame(spark, 0, 1000, "a"), uri, primaryKey="id", regions="bucket(id, 4)")
    save(frame(spark, 990, 1010, "b"), uri)
    expected = dict.fromkeys(range(990), "a") | dict.fromkeys(range(990, 1010), "b")
    assert rows(load(spark, uri)) == expected
    table = mw.open_table(uri)
    assert table.primary_key == ("id",)
    by_python = mw.create_table(f"{uri}-by-python", SCHEMA, "id", "bucket(id, 4)")
    assert table.info.region_specs == by_python.info.region_specs
    assert {row["id"]: row["val"] for row in table.scan().read_all().to_pylist()} == expected


def test_rows_of_a_plain_writer_that_are_not_flushed_are_read(
    spark: SparkSession, uri: str
) -> None:
    table = mw.create_table(uri, SCHEMA, "id", [mw.bucket("id", 2)])
    with table.writer() as writer:
        writer.upsert({"id": [1, 2, 3], "val": ["a", "a", "a"]})
        writer.flush()
        writer.upsert({"id": [2], "val": ["b"]})
        writer.delete([3])
        assert rows(load(spark, uri)) == {1: "a", 2: "b"}
        assert rows(load(spark, uri, consistency="manifest")) == {1: "a", 2: "a", 3: "a"}


def test_every_share_of_a_snapshot_masks_what_is_newer(spark: SparkSession, uri: str) -> None:
    """Base fragments and regions are read by different tasks, and every key once."""
    table = mw.create_table(uri, SCHEMA, "id", [mw.bucket("id", 3)])
    oracle: dict[int, str] = {}
    with table.writer() as writer:
        for number, val in enumerate("abcd"):
            keys = list(range(number * 100, number * 100 + 300))
            writer.upsert({"id": keys, "val": [val] * len(keys)})
            gone = keys[::7]
            writer.delete(gone)
            writer.flush()
            oracle |= dict.fromkeys(keys, val)
            for key in gone:
                del oracle[key]
            if number < 3:
                table.merge()
        read = load(spark, uri, rowsPerPartition=50)
        assert read.rdd.getNumPartitions() > 5
        assert rows(read) == oracle
        some = {key: val for key, val in oracle.items() if key >= 100 and val == "b"}
        assert rows(read.where("id >= 100 AND val = 'b'")) == some
        condition = "id >= 100 AND val = 'b'"
        assert rows(load(spark, uri, rowsPerPartition=50, filter=condition)) == some


def test_a_query_runs_in_datafusion_and_its_result_in_spark(spark: SparkSession, uri: str) -> None:
    save(frame(spark, 0, 100, "a"), uri, primaryKey="id")
    found = load(
        spark, uri, query="SELECT val, count(*) AS n FROM t WHERE id >= 90 GROUP BY val", name="t"
    )
    assert found.collect() == [("a", 10)]
    assert "can't be planned" in refusal(lambda: load(spark, uri, query="SELECT nothing FROM t"))


def test_searches_are_queries_and_their_results_join(spark: SparkSession, uri: str) -> None:
    """Also for what is not flushed yet, and without what was replaced."""
    fields = {"id": pa.int64(), "body": pa.string(), "at": pa.list_(pa.float32(), 2)}
    table = mw.create_table(uri, pa.schema(fields), "id", [mw.bucket("id", 2)])
    with table.writer() as writer:
        bodies = [f"wet {'cat' if key % 5 else 'dog'}" for key in range(20)]
        places = [[float(key), 0.0] for key in range(20)]
        writer.upsert({"id": list(range(20)), "body": bodies, "at": places})
        writer.flush()
        writer.upsert({"id": [5, 20], "body": ["dry cat", "dog"], "at": [[99.0, 0.0], [5.5, 0.0]]})
        nearest = load(
            spark,
            uri,
            query="SELECT id, _distance FROM vector_search('t', 'at', [5.0, 0.0], 3)",
            name="t",
        )
        assert {(row["id"], row["_distance"]) for row in nearest.collect()} == {
            (20, 0.25),
            (4, 1.0),
            (6, 1.0),
        }
        dogs = "SELECT id, _score FROM full_text_search('t', 'body', 'dog', 9) WHERE id > 5"
        found = load(spark, uri, query=dogs, name="t").join(load(spark, uri), "id")
        best = found.orderBy(sf.desc("_score")).collect()
        assert [row["body"] for row in best] == ["dog", "wet dog", "wet dog"]
        assert {row["id"] for row in best} == {10, 15, 20}


def test_deletes_by_operation_and_by_column(spark: SparkSession, uri: str) -> None:
    save(frame(spark, 0, 20, "a"), uri, primaryKey="id", regions="bucket(id, 2)")
    save(spark.range(5), uri, operation="delete")
    assert sorted(rows(load(spark, uri))) == list(range(5, 20))
    changes = spark.createDataFrame(
        [(5, "b", False), (6, None, True), (7, "b", None)], "id long, val string, gone boolean"
    )
    save(changes.coalesce(1), uri, deleteColumn="gone")
    assert rows(load(spark, uri)) == {5: "b", 7: "b"} | dict.fromkeys(range(8, 20), "a")


def test_the_same_key_from_two_tasks_needs_an_order(spark: SparkSession, uri: str) -> None:
    """Protocol rule 24."""
    save(frame(spark, 0, 10, "old"), uri, primaryKey="id", regions="bucket(id, 2)")
    both = twice(spark, 5)
    message = refusal(lambda: save(both, uri))
    assert "two tasks have a row of the key {'id': 0}" in message
    assert set(rows(load(spark, uri)).values()) == {"old"}
    ordered = both.withColumn("at", sf.when(sf.col("val") == "x", 2).otherwise(1))
    save(ordered, uri, orderBy="at")
    expected = dict.fromkeys(range(5), "x") | dict.fromkeys(range(5, 10), "old")
    assert rows(load(spark, uri)) == expected


def test_repartitioning_by_region_brings_keys_together(spark: SparkSession, uri: str) -> None:
    save(frame(spark, 0, 10, "old"), uri, primaryKey="id", regions="bucket(id, 4)")
    save(repartition_by_region(twice(spark, 50), uri), uri, duplicates="last")
    assert sorted(rows(load(spark, uri))) == list(range(50))
    divided = repartition_by_region(twice(spark, 60), uri, 12, parts=3)
    assert divided.select(sf.spark_partition_id()).distinct().count() > 4
    save(divided, uri, duplicates="last")
    assert sorted(rows(load(spark, uri))) == list(range(60))
    with pytest.raises(mw.InvalidCallError, match="from 1 to 4,096"):
        repartition_by_region(divided, uri, parts=0)


def test_overwrite_replaces_what_regions_hold_too(spark: SparkSession, uri: str) -> None:
    save(frame(spark, 0, 100, "a"), uri, primaryKey="id", regions="bucket(id, 3)")
    table = mw.open_table(uri)
    with table.writer(turns=False) as writer:
        writer.upsert({"id": [1000], "val": ["in the WAL"]})
        save(frame(spark, 50, 60, "b"), uri, "overwrite")
        assert rows(load(spark, uri)) == dict.fromkeys(range(50, 60), "b")
        with pytest.raises(mw.FencedError):
            writer.upsert({"id": [1000], "val": ["by the fenced writer"]})
    assert table.scan().read_all().num_rows == 10
    upsert_rows(table, {"id": [1], "val": ["c"]})
    assert rows(load(spark, uri)) == dict.fromkeys(range(50, 60), "b") | {1: "c"}


def test_if_exists_says_what_to_do_with_a_table(spark: SparkSession, uri: str) -> None:
    save(frame(spark, 0, 10, "a"), uri, primaryKey="id", ifExists="error")
    message = refusal(lambda: save(frame(spark, 0, 10, "b"), uri, ifExists="error"))
    assert "is there already" in message
    save(frame(spark, 0, 10, "b"), uri, ifExists="ignore")
    assert set(rows(load(spark, uri)).values()) == {"a"}


def test_a_batch_with_an_id_is_written_once(spark: SparkSession, uri: str) -> None:
    """Protocol rule 24: also when another writer has written since."""
    save(frame(spark, 0, 10, "a"), uri, primaryKey="id", queryId="load", batchId=0)
    table = mw.open_table(uri)
    upsert_rows(table, {"id": [3], "val": ["newer"]})
    save(frame(spark, 0, 10, "a"), uri, queryId="load", batchId=0)
    assert rows(load(spark, uri))[3] == "newer"
    save(frame(spark, 0, 10, "b"), uri, queryId="load", batchId=1)
    assert rows(load(spark, uri))[3] == "b"


def test_columns_of_a_new_table_take_nulls_whatever_its_first_rows_are(
    spark: SparkSession, uri: str
) -> None:
    """But for the key; as in every format of Spark."""
    first = spark.sql("SELECT 1L AS id, 'a' AS val, array(1) AS many, named_struct('x', 1) AS one")
    assert not any(field.nullable for field in first.schema.fields)
    save(first, uri, primaryKey="id")
    schema = mw.open_table(uri).schema
    assert [field.nullable for field in schema] == [False, True, True, True]
    assert schema.field("many").type.value_field.nullable
    assert schema.field("one").type.field("x").nullable
    later = [(2, None, [None], None), (3, "c", None, (None,))]
    save(spark.createDataFrame(later, first.schema.toNullable()), uri)
    found = {row["id"]: tuple(row)[1:] for row in load(spark, uri).collect()}
    assert found == {1: ("a", [1], (1,)), 2: (None, [None], None), 3: ("c", None, (None,))}
    keyless = spark.createDataFrame([(None, "d", [1], (1,))], first.schema.toNullable())
    assert "column 'id' is primary key, but 1 of 1 rows" in refusal(lambda: save(keyless, uri))
