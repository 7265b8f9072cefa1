"""What dies on the way: tasks, executors' workers, and the driver between two batches."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import memwal_sql as mw
from tests.model.writing import upsert_rows
from tests.spark.frames import load, rows, save

SCHEMA = "id bigint, val string"


def dying(note: str, times: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Every row with `a`; the worker is killed after some rows, so many times."""
    for batch in batches:
        yield pa.record_batch({"id": batch.column(0), "val": ["a"] * batch.num_rows})
        for attempt in range(times):
            try:
                os.close(os.open(f"{note}{attempt}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)


def staged(uri: str) -> list[Path]:
    return [file for file in Path(uri).glob("_memwal_sql/staging/**/*") if file.is_file()]


def test_a_task_that_is_killed_in_the_middle_is_run_again(
    spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    frame = spark.range(0, 5000, 1, 2).mapInArrow(partial(dying, str(tmp_path / "died"), 1), SCHEMA)
    save(frame, uri, primaryKey="id", regions="bucket(id, 3)")
    assert (tmp_path / "died0").exists()
    assert rows(load(spark, uri)) == dict.fromkeys(range(5000), "a")
    assert staged(uri) == []


def test_a_write_whose_tasks_keep_dying_leaves_nothing(
    spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    table = mw.create_table(uri, pa.schema({"id": pa.int64(), "val": pa.string()}), "id")
    upsert_rows(table, {"id": [1], "val": ["before"]})
    before = table.wal().num_rows
    frame = spark.range(0, 5000, 1, 2).mapInArrow(partial(dying, str(tmp_path / "died"), 9), SCHEMA)
    with pytest.raises(Py4JJavaError, match="Python worker exited unexpectedly"):
        save(frame, uri)
    assert rows(load(spark, uri)) == {1: "before"}
    assert table.wal().num_rows == before
    assert staged(uri) == []
