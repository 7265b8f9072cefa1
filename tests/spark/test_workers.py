"""Spark's Python workers live on, and Spark collects garbage in them after every call."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import memwal_sql as mw
from memwal_sql.spark import register
from memwal_sql.spark.options import Options
from memwal_sql.spark.tables import check_workers, settle_worker, table_of


def test_an_interpreter_without_the_package_is_refused_with_the_remedy(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o700)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    with pytest.raises(mw.InvalidCallError, match="lacks memwal_sql, memwal_native,") as caught:
        register(spark)
    assert "set the environment variable PYSPARK_PYTHON to an interpreter" in str(caught.value)
    assert repr(str(bare)) in str(caught.value) and repr(sys.executable) in str(caught.value)
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    other.chmod(0o700)
    for fine in (sys.executable, str(other), str(tmp_path / "absent")):
        monkeypatch.setattr(spark.sparkContext, "pythonExec", fine)
        check_workers(spark.sparkContext)


def test_a_worker_that_kept_a_table_reads_its_columns_of_now(uri: str) -> None:
    mw.create_table(uri, pa.schema({"id": pa.int64()}), "id")
    options = Options(uri, {})
    assert table_of(options).schema.names == ["id"]
    mw.open_table(uri).add_columns(pa.field("new", pa.int64()))
    assert table_of(options).schema.names == ["id", "new"]


def test_workers_spare_their_modules_each_collection_and_the_program_does_not(
    spark: SparkSession, uri: str
) -> None:
    mw.create_table(uri, pa.schema({"id": pa.int64()}), "id")

    def spared(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            table_of(Options(uri, {}))
            yield pa.record_batch({"id": [gc.get_freeze_count()]})

    before = gc.get_freeze_count()
    (found,) = spark.range(1).coalesce(1).mapInArrow(spared, "id bigint").collect()
    assert found["id"] > 10_000
    settle_worker()
    assert gc.get_freeze_count() <= before
