"""A table on an S3 server: tasks stage there, and the driver publishes what they staged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import memwal_sql as mw
from tests.model.s3 import s3_client, s3_server
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
