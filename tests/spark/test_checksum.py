"""A table written by Spark and merged by Spark is the same to Spark, pylance and DataFusion.

`make soak` runs it with 5,000,000 rows.
"""

from __future__ import annotations

import os

import datafusion
import lance
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import memwal_sql as mw
from memwal_sql.spark import merge
from tests.spark.frames import load, save

pytestmark = pytest.mark.xdist_group("spark")
ROWS = 5_000_000 if "MEMWAL_SOAK" in os.environ else 100_000


def test_spark_pylance_and_datafusion_agree_on_a_checksum(spark: SparkSession, uri: str) -> None:
    value = ((sf.col("id") * 2_654_435_761) % 1_000_003).alias("value")
    text = sf.rpad(sf.hex("id"), 90, ".").alias("text")
    frame = spark.range(ROWS).select("id", value, text)
    save(frame, uri, primaryKey="id", regions="bucket(id, 4)")
    save(frame.where("id % 10 = 3").withColumn("value", sf.col("value") + 1), uri)
    save(frame.where("id % 10 = 7").select("id"), uri, operation="delete")
    ids = [number for number in range(ROWS) if number % 10 != 7]
    expected = (
        len(ids),
        sum((number * 2_654_435_761) % 1_000_003 + (number % 10 == 3) for number in ids),
    )
    query = "SELECT count(*) AS n, sum(value) AS total FROM t"
    load(spark, uri).createOrReplaceTempView("t")
    assert spark.sql(query).collect() == [expected]
    table = mw.open_table(uri)
    with table.writer() as writer:  # what is in the WAL only is no generation yet
        writer.delete(list(range(-40, 0)))
        writer.flush()
    assert sum(merge(spark, uri).values()) >= 4
    load(spark, uri).createOrReplaceTempView("t")
    assert spark.sql(query).collect() == [expected]
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    assert list(context.sql(query).to_pylist()[0].values()) == list(expected)
    base = lance.dataset(uri).to_table(columns=["value"])["value"]
    assert (len(base), pc.sum(base).as_py()) == expected
