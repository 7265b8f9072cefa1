"""What the manual shows of Spark runs as shown."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

import memwal_sql as mw
from tests.docs.pages import block
from tests.spark.feed import Feed
from tests.spark.frames import frame, load, rows


def test_the_example_runs(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path / "in")
    feed.add([42, 50], "b")
    names = {
        "spark": spark,
        "uri": uri,
        "folder": str(tmp_path / "checkpoint"),
        "frame": frame(spark, 40, 45, "a"),
        "stream": feed.stream(),
    }
    try:
        exec(block("docs/spark.md", "pyspark").text, names)
        for query in spark.streams.active:
            query.processAllAvailable()
    finally:
        for query in spark.streams.active:
            query.stop()
    expected = {40: "a", 41: "a", 42: "b", 43: "a", 44: "a", 50: "b"}
    assert rows(load(spark, uri)) == expected
    assert mw.open_table(uri).check().ok
