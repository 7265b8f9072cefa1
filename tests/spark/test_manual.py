"""What the manual shows of Spark runs as shown."""

from __future__ import annotations

import io
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

import memwal_sql as mw
from demo.flights import load_flights
from demo.spark_pipeline import run
from tests.docs.pages import blocks
from tests.spark.conftest import needs_jar
from tests.spark.feed import Feed
from tests.spark.frames import frame, load, rows


def examples() -> list[str]:
    return [block.text for block in blocks("docs/spark.md") if block.language == "pyspark"]


def test_searches_run(spark: SparkSession, uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("vector", pa.list_(pa.float32(), 2)),
            ("body", pa.string()),
        ]
    )
    table = mw.create_table(uri, schema, "id")
    with table.writer() as writer:
        writer.upsert(
            [
                {"id": 1, "vector": [0.0, 1.0], "body": "a write"},
                {"id": 200, "vector": [0.1, 0.9], "body": "ahead"},
            ]
        )
    exec(examples()[2], {"spark": spark, "uri": uri})
    nearest, best = capsys.readouterr().out.split("_score")
    assert "a write" in nearest and "ahead" not in nearest and "ahead" in best


def test_threads_of_the_driver_write(spark: SparkSession, uri: str) -> None:
    parts = [frame(spark, first, first + 5, "a") for first in (0, 3)]
    mw.create_table(uri, pa.schema({"id": pa.int64(), "val": pa.string()}), "id")
    (example,) = (text for text in examples() if "ThreadPoolExecutor" in text)
    exec(example, {"spark": spark, "uri": uri, "parts": parts})
    load(spark, uri).createOrReplaceTempView("rows_of_threads")
    spark.sql("INSERT INTO rows_of_threads VALUES (9, 'b')")
    assert rows(load(spark, uri)) == dict.fromkeys(range(8), "a") | {9: "b"}
    some = spark.read.format("memwal").schema("val STRING").load(uri)
    assert sorted(some.collect()) == [("a",)] * 8 + [("b",)]


@needs_jar
def test_the_catalog_runs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = (text for text in examples() if "MemwalCatalog" in text)
    exec(example, {"spark": spark, "folder": str(tmp_path)})
    shown = capsys.readouterr().out
    assert "Rome" in shown and "Oslo" not in shown and "create_index" in shown
    assert spark.sql("SELECT * FROM lake.copy ORDER BY id").collect() == [
        (1, "Oslo", 0),
        (2, "Rome", 0),
    ]


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
        exec(examples()[0], names)
        for query in spark.streams.active:
            query.processAllAvailable()
    finally:
        for query in spark.streams.active:
            query.stop()
    expected = {40: "a", 41: "a", 42: "b", 43: "a", 44: "a", 50: "b"}
    assert rows(load(spark, uri)) == expected
    assert mw.open_table(uri).check().ok


@needs_jar
def test_the_setting_of_the_jar_names_a_file() -> None:
    names: dict[str, object] = {"SparkSession": SparkSession}
    exec(examples()[1], names)
    assert Path(str(names["jar"]())).is_file()  # type: ignore[operator]


def test_totals_are_kept_exactly_once(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    """Over updates, deletes, a merge, restarts, and a batch that runs again once it is written."""
    order = pa.schema({"id": pa.int64(), "customer": pa.string(), "cents": pa.int64()})
    total = pa.schema({"customer": pa.string(), "orders": pa.int64(), "cents": pa.int64()})
    orders = mw.create_table(uri, order, "id", [mw.bucket("id", 2)])
    totals = mw.create_table(f"{uri}-totals", total, "customer")
    checkpoint = tmp_path / "checkpoint"
    (recipe,) = [b.text for b in blocks("docs/recipes/totals.md") if b.language == "pyspark"]
    names = {"spark": spark, "orders": uri, "totals": totals.uri, "folder": str(checkpoint)}

    def follow() -> None:
        exec(recipe, dict(names))
        held = (
            orders.to_arrow().group_by("customer").aggregate([([], "count_all"), ("cents", "sum")])
        )
        expected = {
            row["customer"]: (row["count_all"], row["cents_sum"]) for row in held.to_pylist()
        }
        found = {r["customer"]: (r["orders"], r["cents"]) for r in totals.to_arrow().to_pylist()}
        assert found == expected

    with orders.writer() as writer:
        writer.upsert([{"id": i, "customer": f"c{i % 3}", "cents": i} for i in range(20)])
        follow()
        for note in ("0", ".0.crc"):
            (checkpoint / "commits" / note).unlink()
        writer.upsert([{"id": i, "customer": "c0", "cents": 7 * i} for i in range(0, 20, 2)])
        writer.delete([{"id": i} for i in range(1, 20, 3)])
        writer.flush()
        orders.merge()
        writer.delete([{"id": i} for i in range(2, 20, 3)])
        follow()


def test_flights_go_from_csv_into_a_table_and_come_out_equal(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = io.StringIO()
    outcomes = run(spark, Console(file=text), tmp_path, load_flights(date(2013, 1, 3)))
    assert len(outcomes) == 3
    assert [outcome.problem for outcome in outcomes] == [None] * 3
    assert "Spark SQL counts" in text.getvalue()
