"""Maintenance as Spark jobs: one task per region, index or group of fragments.

A task does the same as the method of `Table`, so jobs may run at the same time as each other, as
jobs of other processes and as writers; one that dies has lost nothing but its time, and running it
again goes on where it stopped. Descriptions in Spark's UI say what runs.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import pyarrow as pa
from lance.optimize import CompactionTask
from pyspark.sql import Row, SparkSession

from memwal_sql.create import open_table
from memwal_sql.maintain.compact.compactor import Extent
from memwal_sql.maintain.gc.collector import DEFAULT_GRACE
from memwal_sql.table import Table

_DESCRIPTION = "spark.job.description"
_RESULT = "item string, done bigint"
Work = Callable[[Table, str], int]
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


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
        spark,
        place,
        "merging",
        "regions",
        regions,
        lambda table, region: table.merge(regions=[region]),
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


def compact(spark: SparkSession, uri: str, storage_options: Mapping[str, str] | None = None) -> int:
    """Join small fragments of the base table, and leave deleted rows out: a task a group of
    fragments, which are committed here. Groups that others have changed meanwhile stay as they are.

    Returns how many fragments were rewritten.
    """
    place = _place(uri, storage_options)
    compactor = place.open().compactor()
    tasks = compactor.plan(Extent())
    if not tasks:
        return 0
    text = f"compacting {uri}, {len(tasks)} groups of fragments"
    rows = run_tasks(
        spark, text, len(tasks), partial(_compacted, place, tuple(tasks)), "new binary"
    )
    return compactor.commit(pickle.loads(row["new"]) for row in rows)  # noqa: S301  # our tasks'


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
    text = f"{verb} {place.uri}, {len(items)} {noun}"
    rows = run_tasks(spark, text, len(items), partial(_task, place, tuple(items), work), _RESULT)
    return {row["item"]: row["done"] for row in rows}


def run_tasks(spark: SparkSession, text: str, count: int, task: Task, result: str) -> Sequence[Row]:
    """The results of so many tasks, each of which gets its number."""
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setJobDescription(f"memwal: {text}")
    try:
        return spark.range(0, count, 1, count).mapInArrow(task, result).collect()
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]  # None unsets it


def _compacted(
    place: _Place, tasks: Sequence[CompactionTask], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    compactor = place.open().compactor()
    for batch in batches:
        numbers = batch.column(0).to_pylist()
        results = [pickle.dumps(compactor.execute(tasks[number])) for number in numbers]
        yield pa.record_batch({"new": pa.array(results, pa.binary())})


def _task(
    place: _Place, items: tuple[str, ...], work: Work, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    table = place.open()
    for batch in batches:
        named = [items[number] for number in batch.column(0).to_pylist()]
        done = [work(table, item) for item in named]
        yield pa.record_batch({"item": named, "done": pa.array(done, pa.int64())})
