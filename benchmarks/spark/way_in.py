"""Reading, writing and micro-batches beside Parquet, with the jar and without it, in a session."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks.support.result import Result, at_most_ratio
from memwal_sql.spark import MemWalDataSource

_TURNS = 5
_BATCHES = 15
_COLUMNS = (
    "id",
    "id * 0.5 AS x",
    "id % 1000 AS n",
    "concat('name ', id % 5000) AS name",
    "hex(xxhash64(id)) AS code",
    "timestamp_micros(1700000000000000 + id * 1000000) AS at",
    "date_add(DATE'2020-01-01', int(id % 2000)) AS day",
    "id % 3 = 0 AS flag",
    "cast(id % 10000 AS decimal(10, 2)) AS price",
    "int(id % 97) AS k",
)
# The bounds with the jar.
_READS: Mapping[str, tuple[float, Callable[[DataFrame, int], DataFrame]]] = {
    "all columns": (1.0, lambda frame, _: frame),
    "two columns, a tenth of the keys": (
        1.2,
        lambda frame, rows: frame.where(
            f"id >= {rows // 3} AND id < {rows // 3 + rows // 10}"
        ).select("id", "x"),
    ),
    "count(*)": (1.2, lambda frame, _: frame.groupBy().count()),
}


class PythonSource(MemWalDataSource):
    """What format `memwal` is without the jar."""

    @classmethod
    def name(cls) -> str:
        return "memwal_python"


def way_in(spark: SparkSession, folder: Path, rows: int) -> Iterator[Result]:
    """`rows` rows of ten columns, in a table with eight regions."""
    spark.dataSource.register(PythonSource)
    frame = spark.range(rows).selectExpr(*_COLUMNS)
    parquet, uri = str(folder / f"{rows}.parquet"), str(folder / f"{rows}.memwal")

    def written() -> None:
        shutil.rmtree(uri, ignore_errors=True)
        writer = frame.write.format("memwal").mode("append").option("primaryKey", "id")
        writer.option("regions", "bucket(id, 8)").save(uri)

    def replaced() -> None:
        frame.write.format("memwal").mode("overwrite").save(uri)

    plain, created, overwritten = _in_turns(
        lambda: frame.write.mode("overwrite").parquet(parquet), written, replaced, turns=3
    )
    size = f"{rows:,} rows of ten columns"
    yield at_most_ratio(f"write {size}, new table", created, plain, "Parquet", 1.5)
    yield at_most_ratio(f"write {size}, overwrite", overwritten, plain, "Parquet", 1.5)
    for name, (bound, read) in _READS.items():
        theirs, ours, python = _in_turns(
            lambda read=read: _drain(read(spark.read.parquet(parquet), rows)),
            lambda read=read: _drain(read(spark.read.format("memwal").load(uri), rows)),
            lambda read=read: _drain(read(spark.read.format("memwal_python").load(uri), rows)),
        )
        yield at_most_ratio(f"read {size}: {name}", ours, theirs, "Parquet", bound)
        yield Result("  the same without the jar", 1000 * python, "ms", 1000 * theirs, "Parquet")


def micro_batch(spark: SparkSession, folder: Path) -> Iterator[Result]:
    """The median time of a batch of 100 rows, each a file of Parquet."""
    feed = folder / "feed"
    for number in range(_BATCHES):
        rows = spark.range(number * 100, number * 100 + 100, 1, 1)
        rows.select("id", sf.col("id").cast("string").alias("val")).write.mode("append").parquet(
            str(feed)
        )
    found = {}
    for turn in range(2):
        for form in ("parquet", "memwal"):
            place = folder / f"{form}{turn}"
            found[form] = _trigger(spark, feed, form, place)
    yield at_most_ratio(
        "micro-batch of 100 rows", found["memwal"], found["parquet"], "Parquet", 1.15
    )


def _trigger(spark: SparkSession, feed: Path, form: str, place: Path) -> float:
    files = spark.readStream.schema("id long, val string").option("maxFilesPerTrigger", 1)
    writer = files.parquet(str(feed)).writeStream.format(form).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{place}.checkpoint")
    if form == "memwal":
        writer = writer.option("primaryKey", "id")
    query = writer.start(str(place))
    query.awaitTermination()
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))
    times = [batch["durationMs"]["triggerExecution"] for batch in query.recentProgress]
    return statistics.median(times[len(times) // 3 :]) / 1000


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _in_turns(*calls: Callable[[], None], turns: int = _TURNS) -> list[float]:
    """The medians in seconds, after one turn that counts for none."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(turns + 1):
        for call, taken in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            if turn:
                taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]
