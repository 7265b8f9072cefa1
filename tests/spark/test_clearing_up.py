"""What is done when a write is published, or given up, changes nothing of what has become of it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import memwal_sql as mw
from memwal_sql.spark.options import Options
from memwal_sql.spark.writer import BatchWriter, StreamWriter

COLUMNS = StructType(
    [
        StructField("id", LongType(), False),
        StructField("val", StringType()),
    ]
)
ROWS = pa.table({"id": [1, 2], "val": ["a", "b"]})


def appends(options: Options) -> None:
    writer = BatchWriter(options, COLUMNS, overwrite=False)
    writer.commit([writer.write(iter(ROWS.to_batches()))])


def overwrites(options: Options) -> None:
    writer = BatchWriter(options, COLUMNS, overwrite=True)
    writer.commit([writer.write(iter(ROWS.to_batches()))])


def streams(options: Options) -> None:
    writer = StreamWriter(options, COLUMNS, overwrite=False)
    writer.commit([writer.write(iter(ROWS.to_batches()))], 0)


def aborts(options: Options) -> None:
    writer = BatchWriter(options, COLUMNS, overwrite=False)
    writer.abort([writer.write(iter(ROWS.to_batches()))])


def aborts_a_stream(options: Options) -> None:
    writer = StreamWriter(options, COLUMNS, overwrite=False)
    writer.abort([writer.write(iter(ROWS.to_batches()))], 0)


@pytest.mark.parametrize("write", [appends, overwrites, streams, aborts, aborts_a_stream])
def test_staged_rows_that_can_not_be_removed_fail_no_write(
    write: Callable[[Options], None],
    uri: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Spark would run a job again that has written all, or tell of this and not of the cause."""

    def fails(*_: object) -> None:
        raise mw.StoreUnavailableError("no answer")

    monkeypatch.setattr(mw.Table, "discard_staged", fails)
    given = {"primaryKey": "id"}
    if write in (streams, aborts_a_stream):
        given["queryId"] = "query"
    with caplog.at_level(logging.WARNING, "memwal_sql"):
        write(Options(uri, given))
    published = 0 if write in (aborts, aborts_a_stream) else 2
    assert mw.open_table(uri).scan().read_all().num_rows == published
    warned = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert all("left there" in one for one in warned)
    assert len(warned) == (write is not streams)
