"""Bad input is an error on the driver that names it, before data moves."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import memwal_sql as mw
from tests.spark.frames import frame, load, refusal, save

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "is not a table yet; to create it name its key"),
        ({"primaryKey": "key"}, "primary key column 'key' is not in the schema"),
        ({"primarykeys": "id"}, "did you mean 'primaryKey'?"),
        ({"primaryKey": "id", "consistency": "strong"}, "'consistency' means nothing to writing"),
        ({"primaryKey": "id", "regions": "buckets(id, 8)"}, "regions='buckets(id, 8)'"),
        ({"primaryKey": "id", "regions": "bucket(val, 8)"}, "val"),
        ({"primaryKey": "id", "regions": "manual"}, "nothing says which region a row"),
        ({"primaryKey": "id", "orderBy": "at"}, "orderBy='at' is not a column"),
        ({"primaryKey": "id", "deleteColumn": "val"}, "it must be boolean"),
        ({"primaryKey": "id", "operation": "insert"}, "operation='insert' must be one of"),
        ({"primaryKey": "id", "queryId": "q"}, "queryId and batchId belong together"),
        ({"primaryKey": "id", "ifExists": "drop"}, "ifExists='drop' must be one of"),
    ],
)
def test_a_write_that_can_not_be_done_is_refused(
    spark: SparkSession, uri: str, options: dict[str, str], message: str
) -> None:
    assert message in refusal(lambda: save(frame(spark, 0, 3, "a"), uri, **options))
    assert not list(Path(uri).glob("_mem_wal/*"))


def test_rows_that_do_not_fit_a_table_are_refused(spark: SparkSession, uri: str) -> None:
    mw.create_table(uri, SCHEMA, "id", [mw.bucket("id", 2)])
    rows = frame(spark, 0, 3, "a")
    for wrong, message in (
        (rows.drop("id"), "the column 'id' (int64) is missing"),
        (rows.withColumn("id", sf.col("id").cast("string")), "'id' is string, and int64 in the"),
        (rows.withColumn("more", sf.lit(1)), "the table has no columns ['more']"),
    ):
        assert message in refusal(lambda wrong=wrong: save(wrong, uri))
    assert "not by ['id_bucket', 'val'" in refusal(
        lambda: save(rows, uri, regions="bucket(id, 2), identity(val)")
    )
    assert "has the primary key ['id'], not ['val']" in refusal(
        lambda: save(rows, uri, primaryKey="val")
    )
    missing = rows.withColumn("id", sf.when(sf.col("id") > 0, sf.col("id")))
    assert "column 'id' is primary key, but row 0 has a null in it" in refusal(
        lambda: save(missing, uri)
    )
    assert mw.open_table(uri).scan().read_all().num_rows == 0


def test_tables_that_can_not_be_written_say_why(spark: SparkSession, tmp_path: Path) -> None:
    plain = str(tmp_path / "plain")
    lance.write_dataset(pa.table({"id": [1], "val": ["a"]}), plain)
    assert "without a MemWAL index" in refusal(lambda: save(frame(spark, 0, 3, "a"), plain))
    manual = str(tmp_path / "manual")
    mw.create_table(manual, SCHEMA, "id", mw.manual())
    assert "are manual" in refusal(lambda: save(frame(spark, 0, 3, "a"), manual))
    assert "memory of one process" in refusal(lambda: save(frame(spark, 0, 3, "a"), "memory://x"))
    nowhere = "/proc/nowhere/table"
    message = refusal(lambda: save(frame(spark, 0, 3, "a"), nowhere, primaryKey="id"))
    assert f"{nowhere} could not be created" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colums": "id"}, "did you mean 'columns'?"),
        ({"columns": "nothing"}, "each must be one of ['id', 'val']"),
        ({"version": "first"}, "version='first' must be a whole number"),
        ({"version": "99"}, "has no version 99"),
        ({"consistency": "weak"}, "consistency must be one of"),
        ({"primaryKey": "id"}, "'primaryKey' means nothing to reading"),
        ({"rowsPerPartition": "0"}, "rowsPerPartition='0'"),
        ({"filter": "nothing = 1"}, "filter='nothing = 1' can't be used"),
        ({"name": "t"}, "it needs option query"),
        ({"query": "SELECT * FROM memwal", "columns": "id"}, "['columns'] have no meaning with"),
        ({"query": "INSERT INTO memwal VALUES (1, 'a')"}, "DML not supported"),
        ({"query": "CREATE TABLE t AS SELECT 1"}, "DDL not supported"),
        (
            {"query": "SELECT a.id, b.id, b.val FROM memwal a JOIN memwal b ON a.id = b.id"},
            "has several columns with the names ['id']: give each a name of its own with AS",
        ),
    ],
)
def test_a_read_that_can_not_be_done_is_refused(
    spark: SparkSession, uri: str, options: dict[str, str], message: str
) -> None:
    mw.create_table(uri, SCHEMA, "id")
    assert message in refusal(lambda: load(spark, uri, **options).count())


def test_reading_what_is_no_table_says_so(spark: SparkSession, uri: str) -> None:
    assert "is not a Lance table" in refusal(lambda: load(spark, uri))
