"""Streaming writes are exactly once; streaming reads follow the changes."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import memwal_sql as mw
from memwal_sql.spark import (
    add_columns,
    build_indexes,
    collect_garbage,
    compact,
    merge,
    snapshot_regions,
)
from tests.model.writing import upsert_rows
from tests.spark.feed import Feed, run, start
from tests.spark.frames import load, rows

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})


def test_a_stream_writes_every_batch_once(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    """A driver that dies after publishing a batch, and before Spark noted it, runs it again."""
    feed, checkpoint = Feed(spark, tmp_path / "in"), tmp_path / "checkpoint"
    feed.add([1, 2, 3], "a")
    feed.add([3, 4], "b")
    run(feed.stream(), uri, checkpoint, primaryKey="id", regions="bucket(id, 2)")
    table = mw.open_table(uri)
    assert rows(load(spark, uri)) == {1: "a", 2: "a", 3: "b", 4: "b"}
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    assert f"{query}.0" in mw.history(table)["id"].to_pylist()
    entries = table.wal().num_rows
    upsert_rows(table, {"id": [3], "val": ["by another writer since"]})
    for note in ("1", ".1.crc"):
        (checkpoint / "commits" / note).unlink()
    feed.add([5], "c")
    run(feed.stream(), uri, checkpoint)
    assert rows(load(spark, uri)) == {
        1: "a",
        2: "a",
        3: "by another writer since",
        4: "b",
        5: "c",
    }
    assert table.wal().num_rows > entries
    assert not list(Path(uri).glob("_memwal_sql/staging/*/*"))


def test_two_streams_into_one_table_take_turns(
    spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    mw.create_table(uri, SCHEMA, "id", [mw.bucket("id", 3)])
    feeds = [Feed(spark, tmp_path / f"in{number}") for number in range(2)]
    for batch in range(4):
        for number, feed in enumerate(feeds):
            first = 1000 * number + 10 * batch
            feed.add(list(range(first, first + 20)), f"{number}.{batch}")
    queries = [
        start(feed.stream(), uri, tmp_path / f"checkpoint{number}")
        for number, feed in enumerate(feeds)
    ]
    for query in queries:
        assert query.awaitTermination(120)
        assert query.exception() is None
    expected = {
        1000 * number + 10 * batch + row: f"{number}.{batch}"
        for number in range(2)
        for batch in range(4)
        for row in range(20)
    }
    assert rows(load(spark, uri)) == expected


def test_a_checkpoint_of_another_table_is_refused(
    spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    feed, checkpoint = Feed(spark, tmp_path / "in"), tmp_path / "checkpoint"
    feed.add([1], "a")
    run(feed.stream(), uri, checkpoint, primaryKey="id")
    shutil.rmtree(uri)
    feed.add([2], "b")
    with pytest.raises(StreamingQueryException, match="that of a query into another table"):
        run(feed.stream(), uri, checkpoint, primaryKey="id")


def test_maintenance_runs_as_spark_jobs_beside_reads(spark: SparkSession, uri: str) -> None:
    """A snapshot that was planned before a merge and a collection is read after them."""
    table = mw.create_table(uri, SCHEMA, "id", [mw.bucket("id", 3)])
    with table.writer() as writer:
        for val in "abc":
            writer.upsert({"id": list(range(60)), "val": [val] * 60})
            writer.flush()
    planned = load(spark, uri)
    assert planned.rdd.getNumPartitions() >= 1
    assert sum(merge(spark, uri).values()) == 9
    assert sum(merge(spark, uri).values()) == 0
    assert set(build_indexes(spark, uri)) >= {"id_idx"}
    assert snapshot_regions(spark, uri) == mw.open_table(uri).version
    with table.writer() as writer:
        writer.upsert({"id": list(range(30, 90)), "val": ["d"] * 60})
        writer.flush()
    table.merge()
    assert compact(spark, uri) >= 2
    assert compact(spark, uri) == 0
    add_columns(spark, uri, {"more": "concat(val, id)"})
    more = load(spark, uri).select("id", "more").collect()
    assert {row["more"] for row in more if row["id"] in (7, 77)} == {"c7", "d77"}
    assert collect_garbage(spark, uri) >= 0
    assert rows(planned) == dict.fromkeys(range(60), "c")
    now = dict.fromkeys(range(30), "c") | dict.fromkeys(range(30, 90), "d")
    assert rows(load(spark, uri).drop("more")) == now


def test_changes_stream_with_places_that_survive_a_restart(
    spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    table = mw.create_table(uri, SCHEMA, "id", [mw.bucket("id", 2)])
    seen: Counter[tuple[Any, ...]] = Counter()
    folder, checkpoint = tmp_path / "out", tmp_path / "checkpoint"

    def follow(**options: Any) -> int:
        reader = spark.readStream.format("memwal").option("changes", "true")
        for name, value in options.items():
            reader = reader.option(name, value)
        writer = reader.load(uri).writeStream.format("parquet").option("path", str(folder))
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        started = query.start()
        assert started.awaitTermination(120)
        assert started.exception() is None
        return len(list((checkpoint / "commits").glob("[0-9]*")))

    with table.writer() as writer:
        writer.upsert({"id": list(range(10)), "val": ["a"] * 10})
        writer.delete([3])
        follow()
        writer.flush()
        for number in range(3):
            writer.upsert({"id": [number], "val": ["b"]}, atomic=True)
        batches = follow(maxRowsPerBatch=1)
        assert batches >= 3
    for row in spark.read.parquet(str(folder)).collect():
        seen[(row["id"], row["val"], row["_change"])] += 1
        assert (row["_transaction"] is not None) == (row["val"] == "b")
    expected = Counter((i, "a", "upsert") for i in range(10)) + Counter([(3, None, "delete")])
    assert seen == expected + Counter((i, "b", "upsert") for i in range(3))
    offset = json.loads((checkpoint / "offsets" / "0").read_text().splitlines()[-1])
    assert set(offset) == {str(region) for region in table.regions()["region_id"].to_pylist()}
