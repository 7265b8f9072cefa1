"""Late rows, columns that come and go, keys that are null or come twice: what options say of them.

tests/bulk/test_late_rows.py has the cases; here they come by Spark.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import memwal_sql as mw
from memwal_sql.spark.writer import _limits
from tests.spark.feed import Feed, run
from tests.spark.frames import refusal, save

PRICES = pa.schema({"sku": pa.int64(), "price": pa.int64(), "at": pa.int64()})


def prices(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(rows, "sku long, price long, at long, gone boolean").coalesce(1)


def stored(uri: str) -> list[tuple[Any, ...]]:
    table = mw.open_table(uri).to_arrow()
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_a_nightly_batch_with_late_rows_and_deletes_runs_twice(
    spark: SparkSession, uri: str
) -> None:
    mw.create_table(uri, PRICES, "sku", "bucket(sku, 3)")
    first = prices(spark, (1, 10, 5, False), (2, 20, 5, False), (3, 30, 5, False))
    options = {"orderBy": "at", "deleteColumn": "gone"}
    save(first, uri, **options)
    second = prices(
        spark,
        (1, 11, 4, False),  # late
        (2, 0, 4, True),  # a late delete
        (3, 0, 6, True),
        (4, 41, 6, False),
        (4, 40, 4, False),
    )
    after = [(1, 10, 5), (2, 20, 5), (4, 41, 6)]
    for _ in range(2):
        save(second, uri, **options, queryId="nightly", batchId=1)
        assert stored(uri) == after
    with mw.open_table(uri).writer() as writer:
        writer.upsert([{"sku": 4, "price": 1, "at": 1}])  # by another job since
    save(second, uri, **options, queryId="nightly", batchId=1)
    assert stored(uri) == [*after[:2], (4, 1, 1)]
    dearer = prices(spark, (1, 9, 9, False), (2, 90, 1, False)).drop("gone")
    save(dearer, uri, when="t.price < s.price")
    assert stored(uri) == [(1, 10, 5), (2, 90, 1), (4, 1, 1)]
    for options in ({"when": "true"}, {"missing": "keep"}):
        message = refusal(lambda: save(dearer, uri, "overwrite", **options))  # noqa: B023
        assert 'belong to mode("append")' in message


def test_columns_of_the_rows_and_of_the_table_need_not_be_the_same(
    spark: SparkSession, uri: str
) -> None:
    mw.create_table(uri, PRICES, "sku", "bucket(sku, 3)")
    save(prices(spark, (1, 10, 5, None)), uri, mergeSchema="true", deleteColumn="gone")
    assert mw.open_table(uri).schema.names == PRICES.names
    wide = spark.sql("SELECT 1L sku, 11L price, 6L at, 'red' colour, named_struct('x', 1) size")
    save(wide, uri, mergeSchema="true", orderBy="at")
    assert all(field.nullable for field in list(mw.open_table(uri).schema)[1:])
    assert stored(uri) == [(1, 11, 6, "red", {"x": 1})]
    old = prices(spark, (1, 12, 7, None), (2, 20, 7, None)).drop("gone")
    assert "lack the columns ['colour', 'size']" in refusal(lambda: save(old, uri))
    save(old, uri, missing="keep")
    assert stored(uri) == [(1, 12, 7, "red", {"x": 1}), (2, 20, 7, None, None)]
    save(old, uri, missing="null")
    assert [row[3] for row in stored(uri)] == [None, None]
    wrong = wide.selectExpr("sku", "CAST(price AS string) price", "at", "colour", "size")
    assert "'price' is string, and int64" in refusal(lambda: save(wrong, uri, mergeSchema="true"))


def test_a_stream_goes_on_when_columns_come(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    """To the table, and to its source, with one checkpoint."""
    feed, checkpoint = Feed(spark, tmp_path / "in"), tmp_path / "checkpoint"
    feed.add([1, 2], "a")
    run(feed.stream(), uri, checkpoint, primaryKey="id", regions="bucket(id, 2)")
    table = mw.open_table(uri)
    table.add_columns([pa.field("more", pa.string())])
    with mw.open_table(uri).writer() as writer:
        writer.upsert([{"id": 2, "more": "filled"}])
    feed.add([2, 3], "b")
    with pytest.raises(StreamingQueryException, match=r'option\("missing", "keep"\)'):
        run(feed.stream(), uri, checkpoint)
    run(feed.stream(), uri, checkpoint, missing="keep")
    assert stored(uri) == [(1, "a", None), (2, "b", "filled"), (3, "b", None)]
    feed.add([3], "c")
    doubled = feed.stream().selectExpr("*", "concat(val, val) twice")
    run(doubled, uri, checkpoint, missing="keep", mergeSchema="true")
    assert stored(uri)[2] == (3, "c", None, "cc")
    assert mw.open_table(uri).changes().read_all()["_change"].to_pylist().count("upsert") == 6


def test_keys_that_stop_a_stream_are_named_with_what_to_do(
    spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    feed, checkpoint = Feed(spark, tmp_path / "in"), tmp_path / "checkpoint"
    feed.add([1, 1], "a")
    options: dict[str, Any] = {"primaryKey": "id, val"}
    with pytest.raises(StreamingQueryException, match=r"{'id': 1, 'val': 'a'}") as twice:
        run(feed.stream(), uri, checkpoint, **options)
    assert 'option("duplicates", "last")' in str(twice.value)
    run(feed.stream(), uri, checkpoint, **options, duplicates="last")
    feed.add([None, 2, None], "b")  # type: ignore[list-item]
    with pytest.raises(StreamingQueryException) as without:
        run(feed.stream(), uri, checkpoint)
    for words in (
        "column 'id' is primary key, but 2 of 3 rows",
        "the first has {'val': 'b'}",
        '.where("id IS NOT NULL")',
        "_metadata.file_path",
    ):
        assert words in str(without.value)
    run(feed.stream().where("id IS NOT NULL"), uri, checkpoint)
    assert stored(uri) == [(1, "a"), (2, "b")]


def test_create_table_in_the_catalog_of_spark_names_the_other_ways(
    spark: SparkSession, uri: str
) -> None:
    mw.create_table(uri, PRICES, "sku")
    statement = f"CREATE TABLE prices USING memwal OPTIONS (path '{uri}')"
    message = refusal(lambda: spark.sql(statement))
    assert "spark.sql.catalog.NAME" in message and "CREATE TEMPORARY VIEW name USING" in message


def test_later_tasks_send_few_rows_to_the_driver(spark: SparkSession) -> None:
    """Its memory holds what all of them send."""

    def inline(_: Any) -> Any:
        yield _limits().inline

    sent = spark.sparkContext.parallelize(range(33), 33).mapPartitions(inline).collect()
    assert sum(sent) < 17 << 20 and sent[-1] == 16 << 10
