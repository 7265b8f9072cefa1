"""The demo's Spark part, over a few days."""

from __future__ import annotations

import io
from datetime import date
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from demo.flights import load_flights
from demo.spark_pipeline import run


def test_flights_go_from_csv_into_a_table_and_come_out_equal(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = io.StringIO()
    outcomes = run(spark, Console(file=text), tmp_path, load_flights(date(2013, 1, 3)))
    assert len(outcomes) == 3
    assert [outcome.problem for outcome in outcomes] == [None] * 3
    assert "Spark SQL counts" in text.getvalue()
