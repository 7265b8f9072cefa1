"""Tasks and drivers that are killed from outside, `kill -9`; rows equal the oracle after it.

A soak kills whole executors, else the Python processes that run their tasks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import lance
import psutil  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import memwal_sql as mw
from memwal_sql.maintain.merge.shares import MergedShare, MergeShare
from memwal_sql.spark.maintenance import map_shares
from tests.model.waiting import eventually
from tests.model.writing import upsert_rows
from tests.soak import IS_SOAK
from tests.spark.feed import Feed, run
from tests.spark.frames import load, rows, save
from tests.spark.processes import streaming_child

_RUNNER = "CoarseGrainedExecutorBackend" if IS_SOAK else "pyspark.daemon pyspark.worker"


def kill_with_children(process: psutil.Process) -> None:
    """The process and what it has started, at once; without an error if it has ended already."""
    with suppress(psutil.NoSuchProcess):
        for one in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGKILL)


def runners() -> list[psutil.Process]:
    """What runs the tasks of this process's Spark."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it ended meanwhile
            if _RUNNER in " ".join(one.cmdline()):
                found.append(one)
    return found


def attempts(uri: str) -> set[str]:
    """Folders of attempts in which something is staged."""
    staging = Path(uri, "_memwal_sql", "staging")
    holding = (Path(folder) for folder, _, files in os.walk(staging) if files)
    return {folder.relative_to(staging).parts[1] for folder in holding}


def held(note: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows; the first attempt of the second task waits for the end of its process."""
    context = TaskContext.get()
    assert context is not None
    if context.partitionId() == 1 and not note.exists():
        note.touch()
        time.sleep(600)
        raise AssertionError("nobody has killed the task")
    yield from batches


def test_tasks_that_are_killed_while_they_stage_are_run_again(
    spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    """The first task stages two generations; all go when its first file is there, and the second
    one reads."""
    table = mw.create_table(uri, pa.schema({"id": pa.int64(), "val": pa.string()}), "id")
    count, width, note = 6_000, 3_200, tmp_path / "held"

    def kill_all() -> None:
        eventually(lambda: note.exists() and attempts(uri))
        for runner in runners():
            kill_with_children(runner)

    before = {runner.pid for runner in runners()}
    killer = threading.Thread(target=kill_all)
    killer.start()
    frame = spark.range(0, count, 1, 2).select("id", sf.rpad(sf.hex("id"), width, ".").alias("val"))
    save(frame.mapInArrow(partial(held, note), SCHEMA), uri)
    killer.join()
    assert note.exists()
    assert not before & {runner.pid for runner in runners()}
    assert table.snapshot().regions[0].sources, "nothing was published as a generation"
    assert rows(load(spark, uri)) == {key: f"{key:X}".ljust(width, ".") for key in range(count)}
    assert attempts(uri) == set()


@pytest.mark.skipif(not IS_SOAK, reason="starts another Spark; test_streams has it die in words")
def test_a_driver_that_is_killed_goes_on_from_its_checkpoint(
    spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    """Protocol rule 24: no batch is lost, and none that was published is written again."""
    mw.create_table(
        uri, pa.schema({"id": pa.int64(), "val": pa.string()}), "id", [mw.bucket("id", 2)]
    )
    feed, checkpoint = Feed(spark, tmp_path / "in"), tmp_path / "checkpoint"
    batches = 6
    oracle: dict[int, str] = {}
    for batch in range(batches):
        keys = list(range(10 * batch, 10 * batch + 20))
        feed.add(keys, f"of batch {batch}")
        oracle |= dict.fromkeys(keys, f"of batch {batch}")
    arguments = [str(tmp_path / "in"), uri, str(checkpoint)]
    output = tmp_path / "output"
    with output.open("wb") as file:
        child = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", streaming_child.__name__, *arguments],
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=Path(__file__).parents[3],
        )
    try:
        eventually(lambda: (checkpoint / "commits" / "0").exists() or child.poll() is not None)
    finally:
        kill_with_children(psutil.Process(child.pid))
        ended = child.wait()
    assert ended == -signal.SIGKILL, output.read_text()
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    table = mw.open_table(uri)
    last = table.last_batch(query)
    assert 0 <= last < batches - 1
    upsert_rows(table, {"id": [10 * last], "val": ["newer"]})
    run(feed.stream(), uri, checkpoint)
    assert rows(load(spark, uri)) == oracle | {10 * last: "newer"}
    assert table.last_batch(query) == batches - 1


# What dies on the way: tasks, executors' workers, and the driver between two batches.


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


def merged_at_last(note: str, uri: str, share: MergeShare) -> MergedShare:
    """Does a task's work; the worker is killed the first time that this is done."""
    merged = mw.open_table(uri).merge_share(share)
    with suppress(FileExistsError):
        os.close(os.open(note, os.O_CREAT | os.O_EXCL))
        os.kill(os.getpid(), signal.SIGKILL)
    return merged


def test_a_merge_whose_task_dies_has_the_rows_of_the_next_attempt(
    spark: SparkSession, uri: str, tmp_path: Path
) -> None:
    table = mw.create_table(uri, pa.schema({"id": pa.int64(), "val": pa.string()}), "id")
    with table.writer() as writer:
        for val in "ab":
            writer.upsert({"id": range(70_000), "val": [val] * 70_000})
            writer.flush()
        writer.delete([5])
        writer.flush()
    work = partial(merged_at_last, str(tmp_path / "died"), uri)
    run = partial(map_shares, spark, "merging", work=work)
    assert sum(table.merge_in_tasks(run, 2).values()) == 3
    assert (tmp_path / "died").exists()
    written, merged = len(os.listdir(Path(uri, "data"))), lance.dataset(uri)
    assert written == 1 + len(merged.get_fragments()) == 3
    assert merged.count_rows("val = 'b'") == merged.count_rows() == table.count_rows() == 69_999


def staged(uri: str) -> list[Path]:
    return [file for file in Path(uri).glob("_memwal_sql/staging/**/*") if file.is_file()]


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
