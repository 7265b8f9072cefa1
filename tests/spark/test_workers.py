"""Spark's Python workers live on, and Spark collects garbage in them after every call."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import memwal_sql as mw
from memwal_sql.spark.options import Options
from memwal_sql.spark.tables import table_of
from memwal_sql.spark.workers import settle_worker

pytestmark = pytest.mark.xdist_group("spark")


def test_workers_spare_their_modules_each_collection_and_the_program_does_not(
    spark: SparkSession, uri: str
) -> None:
    mw.create_table(uri, pa.schema({"id": pa.int64()}), "id")

    def spared(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            table_of(Options(uri, {}))
            yield pa.record_batch({"id": [gc.get_freeze_count()]})

    (found,) = spark.range(1).coalesce(1).mapInArrow(spared, "id bigint").collect()
    assert found["id"] > 10_000
    settle_worker()
    assert gc.get_freeze_count() == 0
