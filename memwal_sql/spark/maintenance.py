"""Maintenance as Spark jobs, whose tasks share the work of a method of `Table`.

Tasks do what that does, or write files that the driver commits as that does. So jobs may run at
the same time as each other, as jobs of other processes and as writers; one that dies has lost
nothing but its time, and running it again goes on where it stopped. Descriptions in Spark's UI say
what runs.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TypeVar

import pyarrow as pa
from pyspark import SparkContext
from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id

from memwal_sql.create import open_table
from memwal_sql.maintain.compact.compactor import Extent
from memwal_sql.table import Table
from memwal_sql.table.table import DEFAULT_GRACE

_DESCRIPTION = "spark.job.description"
_MOST_PARTS = 4096
S = TypeVar("S")
R = TypeVar("R")


@dataclass(frozen=True)
class _TableAddress:
    """A table that any process can open."""

    uri: str
    storage: tuple[tuple[str, str], ...] = field(repr=False)

    def open(self) -> Table:
        return open_table(self.uri, storage_options=dict(self.storage) or None)


def merge(
    spark: SparkSession, uri: str, storage_options: Mapping[str, str] | None = None
) -> dict[str, int]:
    """Merge what every region has flushed into the base table, by tasks that share the rows to
    write and the fragments of the base table; the driver commits what they have written.

    Returns how many generations were merged, by region id.
    """
    address = _address(uri, storage_options)
    work = partial(_done, address, Table.merge_share)
    run = partial(map_shares, spark, f"merging into {uri}", work=work)
    return address.open().merge_in_tasks(run, parallelism(spark))


def add_columns(
    spark: SparkSession,
    uri: str,
    columns: Mapping[str, str],
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Add columns of SQL expressions over the row, as `Table.add_columns` does; tasks compute
    them for the fragments of the base table."""
    address = _address(uri, storage_options)
    work = partial(_done, address, Table.compute_columns)
    run = partial(map_shares, spark, f"computing columns of {uri}", work=work)
    address.open().add_columns_in_tasks(columns, run, parallelism(spark))


def build_indexes(
    spark: SparkSession, uri: str, storage_options: Mapping[str, str] | None = None
) -> dict[str, int]:
    """Bring the base table's indexes up to date.

    Returns for every index whether it was behind: 1 or 0.
    """
    address = _address(uri, storage_options)
    names = address.open().indexes()["name"].to_pylist()
    return _run(
        spark,
        address,
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
    address = _address(uri, storage_options)
    compactor = address.open().compactor()
    tasks = compactor.plan(Extent())
    text = f"compacting {uri}, {len(tasks)} groups of fragments"
    work = partial(_done, address, lambda table, task: table.compactor().execute(task))
    return compactor.commit(map_shares(spark, text, tasks, work))


def snapshot_regions(
    spark: SparkSession, uri: str, storage_options: Mapping[str, str] | None = None
) -> int:
    """Record the state of all regions; returns the base table version that has the record."""
    address = _address(uri, storage_options)
    done = _run(
        spark, address, "recording", "table", ["regions"], lambda table, _: table.snapshot_regions()
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
    address = _address(uri, storage_options)

    def work(table: Table, _: str) -> int:
        return int(table.collect_garbage(older_than=older_than).num_rows)

    return _run(spark, address, "collecting", "table", ["garbage"], work)["garbage"]


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once."""
    context = context_of(spark)
    if context is not None:
        return max(2, context.defaultParallelism)
    # Spark divides a range into so many parts.
    return max(2, spark.range(_MOST_PARTS).select(spark_partition_id()).distinct().count())


def context_of(spark: SparkSession) -> SparkContext | None:
    """The session's context; None over Spark Connect, where it is in another process."""
    try:
        return spark.sparkContext
    except PySparkAttributeError:
        return None


def _address(uri: str, storage_options: Mapping[str, str] | None) -> _TableAddress:
    return _TableAddress(uri, tuple(sorted((storage_options or {}).items())))


def _run(
    spark: SparkSession,
    address: _TableAddress,
    verb: str,
    noun: str,
    items: Sequence[str],
    work: Callable[[Table, str], int],
) -> dict[str, int]:
    """Call `work` for every item in a task of its own."""
    text = f"{verb} {address.uri}, {len(items)} {noun}"
    done = map_shares(spark, text, items, partial(_done, address, work))
    return dict(zip(items, done, strict=True))


def map_shares(
    spark: SparkSession, text: str, shares: Sequence[S], work: Callable[[S], R]
) -> list[R]:
    """The results of `work` for each share, in tasks; `text` says in Spark's UI what they do."""
    if not shares:
        return []
    with _described(spark, text):
        numbers = spark.range(0, len(shares), 1, len(shares))
        task = partial(_worked, tuple(shares), work)
        rows = numbers.mapInArrow(task, "result binary").collect()
    return [pickle.loads(row["result"]) for row in rows]  # noqa: S301  # our tasks'


@contextmanager
def _described(spark: SparkSession, text: str) -> Iterator[None]:
    """Within it Spark's UI says what jobs do; a client of Spark Connect can't say it."""
    context = context_of(spark)
    if context is None:
        yield
        return
    before = context.getLocalProperty(_DESCRIPTION)
    context.setJobDescription(f"memwal: {text}")
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]  # None unsets it


def _worked(
    shares: tuple[S, ...], work: Callable[[S], R], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        results = [pickle.dumps(work(shares[number])) for number in batch.column(0).to_pylist()]
        yield pa.record_batch({"result": pa.array(results, pa.binary())})


def _done(address: _TableAddress, work: Callable[[Table, S], R], share: S) -> R:
    return work(address.open(), share)
