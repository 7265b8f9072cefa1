"""`python -m benchmarks.spark`: Spark over MemWAL tables, as ratios in one run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks.__main__ import main
from benchmarks.spark.changes import merge
from benchmarks.spark.way_in import micro_batch, way_in
from benchmarks.spark.work import FULL, SMALL, Sizes, batch_write, reading, stream_write
from benchmarks.support.result import Result
from memwal_sql.spark import jar, use_bundled_java

BENCHMARKS: Mapping[str, Callable[[SparkSession, Path, Sizes], Iterator[Result]]] = {
    "reading": reading,
    "batch-write": batch_write,
    "stream-write": stream_write,
    "way-in": lambda spark, folder, sizes: (
        result for rows in sizes.table for result in way_in(spark, folder, rows)
    ),
    "merge": lambda spark, folder, sizes: merge(spark, folder, sizes.merged),
    "micro-batch": lambda spark, folder, _: micro_batch(spark, folder),
}


def run(names: Iterable[str], folder: Path, small: bool, _: Console) -> list[Result]:
    """Run the named benchmarks in one session."""
    sizes = SMALL if small else FULL
    with _local_spark(folder) as spark:
        return [result for name in names for result in BENCHMARKS[name](spark, folder, sizes)]


@contextmanager
def _local_spark(folder: Path) -> Iterator[SparkSession]:
    """Two tasks at once, in one JVM; workers are processes."""
    use_bundled_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.jars": jar(),
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    builder = SparkSession.builder.master("local[2]").appName("memwal benchmarks")
    spark = builder.config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


if __name__ == "__main__":
    raise SystemExit(main(prog="python -m benchmarks.spark", catalog=BENCHMARKS, run=run))
