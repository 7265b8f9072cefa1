"""What the manual shows of Spark runs as shown."""

from __future__ import annotations

import io
from datetime import date
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

import memwal_sql as mw
from demo.flights import load_flights
from demo.spark_pipeline import run
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


def test_flights_go_from_csv_into_a_table_and_come_out_equal(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = io.StringIO()
    outcomes = run(spark, Console(file=text), tmp_path, load_flights(date(2013, 1, 3)))
    assert len(outcomes) == 3
    assert [outcome.problem for outcome in outcomes] == [None] * 3
    assert "Spark SQL counts" in text.getvalue()
