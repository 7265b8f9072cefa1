"""The measurements: reading, a lookup, a batch write, a stream."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import memwal_sql as mw
from benchmarks.support.result import Reach, Result, at_most_ratio
from memwal_sql.bulk.rows import RowForm

_TURNS = 5
_PIECE_ROWS = 1_000_000


@dataclass(frozen=True)
class Sizes:
    """Rows, rows a second, and seconds; the rows of tables beside Parquet, and of a table that
    others are merged into."""

    rows: int
    rate: int
    seconds: int
    table: tuple[int, ...]
    merged: int


FULL = Sizes(5_000_000, 20_000, 30, (300_000, 3_000_000), 1_000_000)
SMALL = Sizes(20_000, 1_000, 8, (20_000,), 20_000)


def reading(spark: SparkSession, folder: Path, sizes: Sizes) -> Iterator[Result]:
    """Two columns of all rows, a fifth of them in generations; then one row by its key, chosen by
    option `filter`, and by WHERE."""
    table = _two_columns(folder / "read", sizes.rows)
    parquet = str(folder / "read.parquet")
    frame = spark.read.format("memwal").load(table.uri)
    frame.write.mode("overwrite").parquet(parquet)
    ours, theirs = _in_turns(
        lambda: _drain(spark.read.format("memwal").load(table.uri)),
        lambda: _drain(spark.read.parquet(parquet)),
    )
    work = f"read {sizes.rows:,} rows, two columns, 20% in generations"
    yield at_most_ratio(work, ours, theirs, "Parquet", 1.5)
    small = _two_columns(folder / "small", max(1, sizes.rows // 50))
    large, little = _in_turns(
        lambda: _one(spark, table.uri, sizes.rows // 3),
        lambda: _one(spark, small.uri, 7),
    )
    yield at_most_ratio("filter on the key", large, little, "a table of 1/50 the size", 1.5)
    where, parquets = _in_turns(
        lambda: _where(spark.read.format("memwal").load(table.uri), sizes.rows // 3),
        lambda: _where(spark.read.parquet(parquet), sizes.rows // 3),
    )
    work = "  the same by WHERE, which reads all rows"
    yield Result(work, 1000 * where, "ms", 1000 * parquets, "Parquet")


def batch_write(spark: SparkSession, folder: Path, sizes: Sizes) -> Iterator[Result]:
    """Rows of 100 bytes into 8 regions, beside Parquet."""
    text = sf.rpad(sf.hex(sf.xxhash64("id")), 92, "x")
    frame = spark.range(sizes.rows).select("id", text.alias("text"))
    uri, parquet = folder / "written", str(folder / "written.parquet")

    def ours() -> None:
        shutil.rmtree(uri, ignore_errors=True)
        writer = frame.write.format("memwal").mode("append").option("primaryKey", "id")
        writer.option("regions", "bucket(id, 8)").save(str(uri))

    def theirs() -> None:
        frame.write.mode("overwrite").parquet(parquet)

    mine, parquets = _in_turns(ours, theirs, turns=2)
    read = spark.read.format("memwal").load(str(uri)).count()
    if read != sizes.rows:
        raise ValueError(f"{sizes.rows} rows were written and {read} are there")
    work = f"batch write {sizes.rows:,} rows of 100 bytes into 8 regions"
    yield at_most_ratio(work, mine, parquets, "Parquet", 4.0)


def stream_write(spark: SparkSession, folder: Path, sizes: Sizes) -> Iterator[Result]:
    """A stream of so many rows a second: does it keep up, and how old is what a reader sees."""
    uri = str(folder / "streamed")
    schema = pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "UTC")})
    table = mw.create_table(uri, schema, "id", [mw.bucket("id", 8)])
    rate = spark.readStream.format("rate").option("rowsPerSecond", sizes.rate)
    rows = rate.option("numPartitions", 2).load()
    frame = rows.select(sf.col("value").alias("id"), sf.col("timestamp").alias("at"))
    writer = frame.writeStream.format("memwal").trigger(processingTime="500 milliseconds")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start(uri)
    ages: list[float] = []
    started = time.time()
    while time.time() - started < sizes.seconds:
        time.sleep(0.2)
        newest = pc.max(table.scan(["at"]).read_all()["at"]).as_py()
        if newest is not None and time.time() - started > sizes.seconds / 4:
            ages.append(time.time() - newest.timestamp())
    progress = [batch for batch in query.recentProgress if batch["numInputRows"]]
    query.stop()
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))
    done = [batch["processedRowsPerSecond"] for batch in progress[len(progress) // 4 :]]
    speed = statistics.median(done)
    yield Result(
        f"streaming write, {sizes.rate:,} rows a second offered: what it could take",
        speed,
        "rows/s",
        reach=Reach(speed, sizes.rate, "at least", "rows/s"),
    )
    p95 = float(np.percentile(ages, 95))
    yield Result(
        "  age of the newest row that a strong reader sees, 95th percentile",
        p95,
        "s",
        reach=Reach(p95, 3.0, "at most", "s"),
    )


def _two_columns(folder: Path, rows: int) -> mw.Table:
    """Four fifths in the base table, one fifth in generations of 8 regions."""
    table = mw.create_table(
        folder, pa.schema({"id": pa.int64(), "value": pa.float64()}), "id", [mw.bucket("id", 8)]
    )
    in_base = rows * 4 // 5
    table.replace_staged([_staged(table, start, in_base) for start in _starts(0, in_base)])
    for start in _starts(in_base, rows):
        table.publisher().publish([_staged(table, start, rows)])
    with table.writer() as writer:
        writer.flush()
    return table


def _starts(first: int, last: int) -> range:
    return range(first, last, _PIECE_ROWS)


def _staged(table: mw.Table, start: int, end: int) -> object:
    ids = pa.array(np.arange(start, min(end, start + _PIECE_ROWS)))
    batch = pa.record_batch({"id": ids, "value": pc.multiply(ids, 0.5)})
    return table.stager("benchmark", RowForm()).stage([batch])


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _one(spark: SparkSession, uri: str, key: int) -> None:
    reader = spark.read.format("memwal").option("filter", f"id = {key}")
    _where(reader.load(uri), key)


def _where(frame: DataFrame, key: int) -> None:
    (row,) = frame.where(f"id = {key}").collect()
    if row["id"] != key:
        raise ValueError(f"asked for {key}, got {row}")


def _in_turns(
    ours: Callable[[], None], theirs: Callable[[], None], turns: int = _TURNS
) -> tuple[float, float]:
    """The medians of both in seconds, after one turn that counts for neither."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(turns + 1):
        for call, taken in zip((ours, theirs), times, strict=True):
            start = time.perf_counter()
            call()
            if turn:
                taken.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])
