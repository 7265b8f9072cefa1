"""MERGE of Spark SQL, beside the same statement of `mw.sql` over a copy of the table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import datafusion
from pyspark.sql import SparkSession

import memwal_sql as mw
from benchmarks.support.result import Result, at_most_ratio

_TURNS = 3
_OURS, _THEIRS = "of_spark", "of_sql"
_MERGE = (
    "MERGE INTO {} AS t USING {} AS s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET n = s.n, name = s.name "
    "WHEN NOT MATCHED THEN INSERT (id, n, name) VALUES (s.id, s.n, s.name)"
)


def merge(spark: SparkSession, folder: Path, rows: int) -> Iterator[Result]:
    """A tenth as many rows into all of them, in eight regions; half of what is merged is new."""
    few, place = rows // 10, folder / "merge"
    spark.conf.set("spark.sql.catalog.bench", "io.memwal.spark.MemwalCatalog")
    spark.conf.set("spark.sql.catalog.bench.root", str(place))
    ctx = datafusion.SessionContext()
    for name in (_OURS, _THEIRS):
        writer = spark.range(rows).selectExpr(*_columns(0)).write.format("memwal").mode("append")
        writer = writer.option("primaryKey", "id").option("regions", "bucket(id, 8)")
        writer.save(str(place / f"{name}.lance"))
    mw.register(ctx, _THEIRS, mw.open_table(place / f"{_THEIRS}.lance"))
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(_TURNS + 1):
        source, first = str(folder / f"source{turn}.parquet"), rows + few // 2 * (turn - 1)
        frame = spark.range(first, first + few).selectExpr(*_columns(turn + 1))
        frame.write.parquet(source)
        spark.read.parquet(source).createOrReplaceTempView("source")
        ctx.register_parquet(f"source{turn}", source)
        calls: tuple[Callable[[], object], ...] = (
            lambda: spark.sql(_MERGE.format(f"bench.{_OURS}", "source")).collect(),
            lambda turn=turn: mw.sql(ctx, _MERGE.format(_THEIRS, f"source{turn}")),
        )
        for call, taken in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            if turn:
                taken.append(time.perf_counter() - start)
    ours, theirs = (_sums(spark, name) for name in (_OURS, _THEIRS))
    if ours != theirs:
        raise ValueError(f"MERGE of Spark gave {ours}, and mw.sql {theirs}")
    work = f"MERGE of {few:,} rows into {rows:,}"
    yield at_most_ratio(work, *map(statistics.median, times), "mw.sql", 3.0)


def _columns(turn: int) -> tuple[str, ...]:
    return "id", f"id % 1000 + {turn} AS n", f"concat('name ', id % 5000, ' {turn}') AS name"


def _sums(spark: SparkSession, name: str) -> list[tuple[int, ...]]:
    sums = "count(*)", "sum(n)", "sum(xxhash64(id, n, name) % 1000000)"
    return [tuple(row) for row in spark.read.table(f"bench.{name}").selectExpr(*sums).collect()]
