"""A table on an S3 server: tasks stage there, and the driver publishes what they staged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import memwal_sql as mw
from tests.model.s3 import s3_client, s3_server
from tests.spark.conftest import needs_jar
from tests.spark.frames import frame, load, refusal, rows, save

BUCKET, SECRET = "tables", "a-very-secret-value"
URI = f"s3://{BUCKET}/events"


@pytest.fixture
def settings() -> Iterator[dict[str, str]]:
    with s3_server(BUCKET, SECRET) as found:
        yield found


def test_tasks_stage_on_the_object_store(spark: SparkSession, settings: dict[str, str]) -> None:
    """Few rows travel in messages, more as staged files, the most as generations, or as data files
    of the table where they replace it."""
    s3 = s3_client(settings)
    options = {f"storage.{name}": value for name, value in settings.items()}
    save(frame(spark, 0, 100, "a"), URI, primaryKey="id", **options)
    oracle = dict.fromkeys(range(100), "a")
    for first, last, width in ((50, 1_550, 500), (90, 1_690, 5_800)):
        val = sf.rpad(sf.hex("id"), width, ".").alias("val")
        save(spark.range(first, last, 1, 1).select("id", val), URI, **options)
        oracle |= {key: f"{key:X}".ljust(width, ".") for key in range(first, last)}
        assert rows(load(spark, URI, **options)) == oracle
    table = mw.open_table(URI, storage_options=settings)
    assert len(table.generations()) > 1
    save(spark.range(3).select("id"), URI, operation="delete", **options)
    for key in range(3):
        del oracle[key]
    assert rows(load(spark, URI, **options)) == oracle
    new = spark.range(0, 400, 1, 1).select("id", sf.lpad(sf.hex("id"), 5_800, ".").alias("val"))
    save(new, URI, "overwrite", **options)
    oracle = {key: f"{key:X}".rjust(5_800, ".") for key in range(400)}
    assert rows(load(spark, URI, **options)) == oracle
    listed = s3.list_objects_v2(Bucket=BUCKET, Prefix="events/_memwal_sql/staging/")
    assert "Contents" not in listed
    wrong = options | {"storage.aws_endpoint": "http://127.0.0.1:1"}
    wrong |= {"storage.client_max_retries": "0", "storage.client_retry_timeout": "1"}
    message = refusal(lambda: load(spark, URI, **wrong).count())
    assert URI in message and SECRET not in message


@needs_jar
def test_a_catalog_is_a_folder_of_the_object_store(
    spark: SparkSession, settings: dict[str, str]
) -> None:
    """Storage options are settings of the catalog, which no statement shows."""
    s3 = s3_client(settings)
    spark.conf.set("spark.sql.catalog.bucket", "io.memwal.spark.MemwalCatalog")
    spark.conf.set("spark.sql.catalog.bucket.root", f"s3://{BUCKET}/lake")
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.bucket.storage.{name}", value)
    spark.sql(
        "CREATE TABLE bucket.events (id BIGINT PRIMARY KEY, val STRING) "
        "PARTITIONED BY (bucket(2, id))"
    )
    spark.sql("INSERT INTO bucket.events VALUES (1, 'a'), (2, 'b')")
    frame(spark, 2, 5, "c").writeTo("bucket.events").append()
    spark.sql("DELETE FROM bucket.events WHERE id = 4")
    assert rows(spark.table("bucket.events")) == {1: "a", 2: "c", 3: "c"}
    table = mw.open_table(f"s3://{BUCKET}/lake/events.lance", storage_options=settings)
    assert table.count_rows("val = 'c'") == 2
    assert [row["tableName"] for row in spark.sql("SHOW TABLES IN bucket").collect()] == ["events"]
    for statement in ("DESCRIBE EXTENDED bucket.events", "EXPLAIN SELECT * FROM bucket.events"):
        assert SECRET not in str(spark.sql(statement).collect())
    spark.sql("DROP TABLE bucket.events")
    listed = s3.list_objects_v2(Bucket=BUCKET, Prefix="lake/").get("Contents", [])
    assert not [entry["Key"] for entry in listed if "_versions/" in entry["Key"]]
    assert "TABLE_OR_VIEW_NOT_FOUND" in refusal(lambda: spark.table("bucket.events").count())
    spark.conf.set("spark.sql.catalog.astray", "io.memwal.spark.MemwalCatalog")
    spark.conf.set("spark.sql.catalog.astray.root", f"s3://{BUCKET}/lake")
    wrong = {"aws_endpoint": "http://127.0.0.1:1", "client_max_retries": "0"}
    for name, value in (settings | wrong | {"client_retry_timeout": "1"}).items():
        spark.conf.set(f"spark.sql.catalog.astray.storage.{name}", value)
    message = refusal(lambda: spark.sql("SHOW TABLES IN astray"))
    assert f"s3://{BUCKET}/lake" in message and SECRET not in message
