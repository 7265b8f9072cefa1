"""Sessions of Spark Connect have no context."""

from __future__ import annotations

from typing import Any, cast

from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession

import memwal_sql as mw
from memwal_sql.spark import add_columns, full_text_search, merge, parallelism, register
from tests.spark.frames import frame, load, save


class Client:
    """A session whose context is in another process."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        if name in ("sparkContext", "_jsc", "_jvm", "_jsparkSession"):
            raise PySparkAttributeError(
                errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": name}
            )
        return getattr(self._spark, name)


def test_jobs_and_searches_need_no_context(spark: SparkSession, uri: str) -> None:
    client = cast(SparkSession, Client(spark))
    assert parallelism(client) == parallelism(spark)
    register(client)
    save(frame(spark, 0, 20, "a word"), uri, primaryKey="id")
    with mw.open_table(uri).writer() as writer:
        writer.flush()
    merge(client, uri)
    add_columns(client, uri, {"twice": "2 * id"})
    assert full_text_search(client, uri, "val", "word", k=50).count() == 20
    assert load(spark, uri).selectExpr("sum(twice)").collect() == [(380,)]
