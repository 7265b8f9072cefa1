"""A folder of Parquet files as a stream."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery


class Feed:
    """A folder of Parquet files that Spark streams one by one."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        folder.mkdir()
        self._files = 0

    def add(self, keys: list[int], val: str) -> None:
        table = pa.table({"id": pa.array(keys, pa.int64()), "val": [val] * len(keys)})
        file = self._folder / f"{self._files:04}.parquet"
        pq.write_table(table, file)
        os.utime(file, (self._files + 1, self._files + 1))  # Spark takes the oldest first
        self._files += 1

    def stream(self) -> DataFrame:
        reader = self._spark.readStream.schema("id long, val string")
        return reader.option("maxFilesPerTrigger", 1).parquet(str(self._folder))


def start(frame: DataFrame, uri: str, checkpoint: Path, **options: Any) -> StreamingQuery:
    writer = frame.writeStream.format("memwal").option("checkpointLocation", str(checkpoint))
    for name, value in options.items():
        writer = writer.option(name, value)
    return writer.trigger(availableNow=True).start(uri)


def run(frame: DataFrame, uri: str, checkpoint: Path, **options: Any) -> None:
    query = start(frame, uri, checkpoint, **options)
    assert query.awaitTermination(120)
