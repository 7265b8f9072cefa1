"""Bad input is an error on the driver that names it, before data moves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

import memwal_sql as mw
from memwal_sql.spark.source import MemWalDataSource
from tests.spark.frames import frame, load, refusal, save

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})


WRITES: list[tuple[dict[str, str], str]] = [
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
    ({"primaryKey": "id", "duplicates": "first"}, "duplicates='first' must be one of"),
    ({"primaryKey": "id", "missing": "drop"}, "missing='drop' must be one of"),
    ({"primaryKey": "id", "mergeSchema": "yes"}, "mergeSchema='yes' must be one of"),
    ({"primaryKey": "id", "when": "t.val <"}, "'t.val <' is not an expression over the row"),
    ({"primaryKey": "id", "when": "t.at < s.at"}, "there is no column 'at'"),
    ({"primaryKey": "id", "when": "val < 'b'"}, "write t.name for a column of the existing row"),
    ({"primaryKey": "id", "ifExists": "drop"}, "ifExists='drop' must be one of"),
]


def refused_write(schema: StructType, uri: str, **options: str) -> str:
    """The message of the error that the driver raises, asked as Spark asks it."""
    with pytest.raises(mw.MemWalError) as caught:
        source(uri, options).writer(schema, overwrite=False)
    return str(caught.value)


def refused_read(uri: str, **options: str) -> str:
    """The same of a read."""
    with pytest.raises(mw.MemWalError) as caught:
        reader = source(uri, options)
        reader.reader(reader.schema()).partitions()
    return str(caught.value)


def source(uri: str, options: Mapping[str, str]) -> MemWalDataSource:
    return MemWalDataSource({"path": uri} | {k.lower(): v for k, v in options.items()})


def test_a_write_that_can_not_be_done_is_refused(spark: SparkSession, uri: str) -> None:
    rows = frame(spark, 0, 3, "a")
    for number, (options, message) in enumerate(WRITES):
        assert message in refused_write(rows.schema, f"{uri}-{number}", **options), options
    options, message = WRITES[1]
    assert message in refusal(lambda: save(rows, uri, **options))
    assert not list(Path(uri).parent.glob("*/_mem_wal/*"))


def test_rows_that_do_not_fit_a_table_are_refused(spark: SparkSession, uri: str) -> None:
    mw.create_table(uri, SCHEMA, "id", [mw.bucket("id", 2)])
    rows = frame(spark, 0, 3, "a")
    for wrong, message in (
        (rows.drop("id"), "the column 'id' (int64) is missing"),
        (rows.withColumn("id", sf.col("id").cast("string")), "'id' is string, and int64 in the"),
        (rows.withColumn("more", sf.lit(1)), "the table has no columns ['more']"),
        (rows.withColumn("more", sf.lit(1)), 'with option("mergeSchema", "true")'),
        (rows.drop("val"), "the rows lack the columns ['val'] of the table: give every column, or"),
        (rows.drop("val"), 'option("missing", "keep")'),
    ):
        assert message in refused_write(wrong.schema, uri)
    assert "not by ['id_bucket', 'val'" in refused_write(
        rows.schema, uri, regions="bucket(id, 2), identity(val)"
    )
    assert "has the primary key ['id'], not ['val']" in refused_write(
        rows.schema, uri, primaryKey="val"
    )
    missing = rows.withColumn("id", sf.when(sf.col("id") > 0, sf.col("id")))
    assert (
        "column 'id' is primary key, but 1 of 1 rows that a task has read have a null"
        in refusal(lambda: save(missing, uri))
    )
    assert mw.open_table(uri).scan().read_all().num_rows == 0


def test_tables_that_can_not_be_written_say_why(spark: SparkSession, tmp_path: Path) -> None:
    schema = frame(spark, 0, 3, "a").schema
    plain, manual = str(tmp_path / "plain"), str(tmp_path / "manual")
    lance.write_dataset(pa.table({"id": [1], "val": ["a"]}), plain)
    assert "without a MemWAL index" in refused_write(schema, plain)
    mw.create_table(manual, SCHEMA, "id", mw.manual())
    assert "are manual" in refused_write(schema, manual)
    assert "memory of one process" in refused_write(schema, "memory://x")
    nowhere = "/proc/nowhere/table"
    message = refused_write(schema, nowhere, primaryKey="id")
    assert f"{nowhere} could not be created" in message


READS: list[tuple[dict[str, str], str]] = [
    ({"colums": "id"}, "did you mean 'columns'?"),
    ({"columns": "nothing"}, "each must be one of ['id', 'val']"),
    ({"version": "first"}, "has no tag 'first'; it has []"),
    ({"version": "1", "timestamp": "2026-01-01T00:00:00Z"}, "give one of version, timestamp"),
    ({"timestamp": "2026-01-01"}, "time zone"),
    ({"versionAsOf": "1"}, "did you mean 'version'?"),
    ({"timestampAsOf": "2026-01-01"}, "did you mean 'timestamp'?"),
    ({"metadata": "facts"}, "metadata='facts' must be one of ['regions', "),
    ({"metadata": "files", "version": "1"}, "['version'] have no meaning with metadata"),
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
]


def test_a_read_that_can_not_be_done_is_refused(spark: SparkSession, uri: str) -> None:
    assert "is not a Lance table" in refused_read(uri)
    mw.create_table(uri, SCHEMA, "id")
    for options, message in READS:
        assert message in refused_read(uri, **options), options
    options, message = READS[1]
    assert message in refusal(lambda: load(spark, uri, **options).count())
