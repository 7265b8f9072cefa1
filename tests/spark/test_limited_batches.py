"""Streaming reads with `maxRowsPerBatch`, asked as Spark asks, without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

import memwal_sql as mw
from memwal_sql.bulk.read import LogLimits
from memwal_sql.bulk.rows import RowForm
from memwal_sql.spark.options import Options
from memwal_sql.spark.stream_reader import ChangeReader
from memwal_sql.state.batch_marks import BatchMark

SCHEMA = pa.schema([pa.field("id", pa.int64(), False)])


def test_a_published_generation_larger_than_the_limit_stops_no_stream(tmp_path: Path) -> None:
    """Protocol rule 24: the parts of such a generation all have the place before it."""
    table = mw.create_table(str(tmp_path / "table"), SCHEMA, primary_key="id")
    with table.writer() as writer:
        writer.upsert({"id": [-1]}, missing="null")
    publisher = table.publisher()
    for number in range(2):
        rows = pa.table({"id": range(20_000 * number, 20_000 * (number + 1))}, schema=SCHEMA)
        task = table.stager("job", RowForm()).stage(rows.to_batches())
        with LogLimits.set(rows=1):
            publisher.publish([task], BatchMark("query", number))
    reader = ChangeReader(Options(table.uri, {}), StructType([StructField("id", LongType())]))
    offset: dict[str, str] = {}
    read: list[int] = []
    batches = 0
    while (end := reader.latestOffset(offset, ReadMaxRows(1))) != offset:
        for part in reader.partitions(offset, end):
            for batch in reader.read(part):
                read += batch.column(0).to_pylist()
        offset = end
        batches += 1
    assert sorted(read) == list(range(-1, 40_000))
    assert batches > 2


def test_a_stream_begins_after_the_rows_of_a_checkpoint(tmp_path: Path) -> None:
    table = mw.create_table(str(tmp_path / "table"), SCHEMA, primary_key="id")
    with table.writer() as writer:
        writer.upsert({"id": [1]})
        table.checkpoint("start")
        writer.upsert({"id": [2]})
    fields = StructType([StructField("id", LongType())])
    starts = {"start": [2], "latest": [], "earliest": [1, 2]}
    for name, expected in starts.items():
        reader = ChangeReader(Options(table.uri, {"startingFrom": name}), fields)
        offset = reader.initialOffset()
        parts = reader.partitions(offset, reader.latestOffset(offset, ReadMaxRows(10)))
        batches = [batch for part in parts for batch in reader.read(part)]
        assert [key for batch in batches for key in batch.column(0).to_pylist()] == expected
    with pytest.raises(mw.InvalidCallError, match="no checkpoint 'another'"):
        ChangeReader(Options(table.uri, {"startingFrom": "another"}), fields).initialOffset()
