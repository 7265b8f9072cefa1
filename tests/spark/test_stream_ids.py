"""The id of a stream names a folder whose files are deleted: one that leads elsewhere is refused
before a task runs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import memwal_sql as mw
from memwal_sql.errors import InvalidCallError
from memwal_sql.spark.options import STREAM_WRITE, parse_options
from memwal_sql.spark.writer import query_of
from tests.model.folder_state import folder_state
from tests.model.writing import upsert_rows
from tests.spark.feed import Feed, start
from tests.spark.frames import frame, refusal, save

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})
ELSEWHERE = ("../../..", "../..", "..", ".", "a/b")


def test_a_stream_with_an_id_that_leads_elsewhere_deletes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """More rows than travel in messages, so that they would be staged in files."""
    table = mw.create_table(tmp_path / "tables" / "table", SCHEMA, "id")
    upsert_rows(table, {"id": [1], "val": ["before"]})
    (tmp_path / "tables" / "other").write_text("precious")
    feed = Feed(spark, tmp_path / "tables" / "in")
    feed.add(list(range(60_000)), "x" * 30)
    before = folder_state(tmp_path / "tables")
    query = start(feed.stream(), table.uri, tmp_path / "checkpoint", queryId=ELSEWHERE[0])
    with pytest.raises(PySparkException, match=r"queryId='\.\./\.\./\.\.' must be up to 128"):
        query.awaitTermination(120)
    assert folder_state(tmp_path / "tables") == before
    message = refusal(
        lambda: save(frame(spark, 0, 3, "a"), table.uri, queryId=ELSEWHERE[0], batchId=0)
    )
    assert "queryId='../../..' must be" in message
    assert folder_state(tmp_path / "tables") == before


@pytest.mark.parametrize("one", ELSEWHERE)
def test_ids_of_options_and_of_checkpoints_are_looked_at(tmp_path: Path, one: str) -> None:
    given = {"path": str(tmp_path / "table"), "queryId": one}
    with pytest.raises(InvalidCallError, match="queryId="):
        query_of(parse_options(given, STREAM_WRITE, "a streaming write"))
    (tmp_path / "metadata").write_text(f'{{"id": "{one}"}}')
    given = {"path": str(tmp_path / "table"), "checkpointLocation": str(tmp_path)}
    with pytest.raises(InvalidCallError, match=r"holds no query id .*name the query with option"):
        query_of(parse_options(given, STREAM_WRITE, "a streaming write"))
