"""Maintenance as Spark jobs: one task a region or index.

A task does what the same method of `Table` does, so jobs may run beside each other, beside those of
other processes and beside writers; one that dies has lost nothing but its time, and running it
again goes on where it stopped. Descriptions in Spark's UI say what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from memwal_sql.create import open_table
from memwal_sql.maintain.gc.collector import DEFAULT_GRACE
from memwal_sql.table import Table

_DESCRIPTION = "spark.job.description"
_RESULT = "item string, done bigint"
Work = Callable[[Table, str], int]


@dataclass(frozen=True)
class _Place:
    """A table that any process can open."""

    uri: str
    storage: tuple[tuple[str, str], ...] = field(repr=False)

    def open(self) -> Table:
        return open_table(self.uri, storage_options=dict(self.storage) or None)


def merge(
    spark: SparkSession, uri: str, storage_options: Mapping[str, str] | None = None
) -> dict[str, int]:
    """Merge what every region has flushed into the base table.

    Returns how many generations were merged, by region id.
    """
    place = _place(uri, storage_options)
    regions = place.open().regions()["region_id"].to_pylist()
    return _run(
        spark, place, "merging", "regions", regions, lambda table, one: table.merge(regions=[one])
    )


def build_indexes(
    spark: SparkSession, uri: str, storage_options: Mapping[str, str] | None = None
) -> dict[str, int]:
    """Bring the base table's indexes up to date.

    Returns for every index whether it was behind: 1 or 0.
    """
    place = _place(uri, storage_options)
    names = place.open().indexes()["name"].to_pylist()
    return _run(
        spark,
        place,
        "indexing",
        "indexes",
        names,
        lambda table, name: len(table.build_indexes(indexes=[name])),
    )


def snapshot_regions(
    spark: SparkSession, uri: str, storage_options: Mapping[str, str] | None = None
) -> int:
    """Record the state of all regions; returns the base table version that has the record."""
    place = _place(uri, storage_options)
    done = _run(
        spark, place, "recording", "table", ["regions"], lambda table, _: table.snapshot_regions()
    )
    return done["regions"]


def collect_garbage(
    spark: SparkSession,
    uri: str,
    storage_options: Mapping[str, str] | None = None,
    *,
    older_than: timedelta = DEFAULT_GRACE,
) -> int:
    """Delete files that no reader needs; returns how many."""
    place = _place(uri, storage_options)

    def work(table: Table, _: str) -> int:
        return int(table.collect_garbage(older_than=older_than).num_rows)

    return _run(spark, place, "collecting", "table", ["garbage"], work)["garbage"]


def _place(uri: str, storage_options: Mapping[str, str] | None) -> _Place:
    return _Place(uri, tuple(sorted((storage_options or {}).items())))


def _run(
    spark: SparkSession, place: _Place, verb: str, noun: str, items: Sequence[str], work: Work
) -> dict[str, int]:
    """Call `work` for every item in a task of its own."""
    if not items:
        return {}
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setJobDescription(f"memwal: {verb} {place.uri}, {len(items)} {noun}")
    try:
        numbers = spark.range(0, len(items), 1, len(items))
        rows = numbers.mapInArrow(partial(_task, place, tuple(items), work), _RESULT).collect()
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]  # None unsets it
    return {row["item"]: row["done"] for row in rows}


def _task(
    place: _Place, items: tuple[str, ...], work: Work, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    table = place.open()
    for batch in batches:
        named = [items[number] for number in batch.column(0).to_pylist()]
        done = [work(table, item) for item in named]
        yield pa.record_batch({"item": named, "done": pa.array(done, pa.int64())})
