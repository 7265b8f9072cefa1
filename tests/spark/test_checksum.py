"""A table written by Spark and merged by Spark is the same to Spark, pylance and DataFusion.

`make soak` runs it with 5,000,000 rows.
"""

from __future__ import annotations

import lance
import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import memwal_sql as mw
from memwal_sql.spark import merge
from tests.model.writing import session_of
from tests.soak import IS_SOAK
from tests.spark.frames import load, save

Numbers = npt.NDArray[np.int64]
ROWS = 5_000_000 if IS_SOAK else 20_000
# Of every row its key, its number and its text count, together.
QUERY = """
    SELECT count(*) AS n, sum(value) AS total,
        sum((id % 1009) * value + position('.' IN text)) AS mixed FROM t
"""


def test_spark_pylance_and_datafusion_agree_on_a_checksum(spark: SparkSession, uri: str) -> None:
    value = ((sf.col("id") * 2_654_435_761) % 1_000_003).alias("value")
    text = sf.rpad(sf.hex("id"), 90, ".").alias("text")
    frame = spark.range(ROWS).select("id", value, text)
    save(frame, uri, primaryKey="id", regions="bucket(id, 4)")
    save(frame.where("id % 10 = 3").withColumn("value", sf.col("value") + 1), uri)
    save(frame.where("id % 10 = 7").select("id"), uri, operation="delete")
    expected = _expected()
    load(spark, uri).createOrReplaceTempView("t")
    assert spark.sql(QUERY).collect() == [expected]
    table = mw.open_table(uri)
    with table.writer() as writer:  # what is in the WAL only is no generation yet
        writer.delete(list(range(-40, 0)))
        writer.flush()
    assert sum(merge(spark, uri).values()) >= 4
    load(spark, uri).createOrReplaceTempView("t")
    assert spark.sql(QUERY).collect() == [expected]
    context = session_of("t", table)
    assert tuple(context.sql(QUERY).to_pylist()[0].values()) == expected
    base = lance.dataset(uri).to_table(columns=["id", "value", "text"])
    columns = (base["id"], base["value"], pc.find_substring(base["text"], "."))
    ids, values, digits = (column.to_numpy() for column in columns)
    assert _sums(ids, values, digits + np.int64(1)) == expected


def _expected() -> tuple[int, int, int]:
    ids = np.arange(ROWS)
    ids = ids[ids % 10 != 7]
    values = (ids * 2_654_435_761) % 1_000_003 + (ids % 10 == 3)
    digits = np.searchsorted(16 ** np.arange(1, 9), ids, side="right") + 1
    return _sums(ids, values, digits + 1)


def _sums(ids: Numbers, values: Numbers, dots: Numbers) -> tuple[int, int, int]:
    mixed = (ids % 1009) * values + dots
    return len(ids), int(values.sum()), int(mixed.sum())
