"""What the jar hands down changes no row: all conditions and uses as without it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import randbytes
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import memwal_sql as mw
from tests.soak import usual
from tests.spark.conftest import needs_jar
from tests.spark.frames import load, refusal, settings

pytestmark = needs_jar

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int32(), [-(2**31), -1, 0, 1, 2**31 - 1]),
    "l": (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1]),
    "u": (pa.uint8(), [0, 1, 127, 200, 255]),
    "big": (pa.uint64(), [0, 1, 2**63, 2**64 - 1, 7]),
    "x": (pa.float64(), [float("nan"), -0.0, 0.0, float("-inf"), 1.5]),
    "f": (pa.float32(), [float("nan"), -0.0, 0.0, float("inf"), 1.5]),
    "b": (pa.bool_(), [True, False, True, False, True]),
    "s": (pa.string(), ["", "it's", 'a "b" \\', "é", "\u0000x"]),
    "y": (pa.binary(), [b"", b"\x00", b"\xff", b"a'", b"ab"]),
    "d": (
        pa.date32(),
        [
            date(1, 1, 1),
            date(1582, 10, 15),
            date(1970, 1, 1),
            date(2024, 2, 29),
            date(9999, 12, 31),
        ],
    ),
    "t": (
        pa.timestamp("us", "UTC"),
        [
            datetime(1500, 1, 1, tzinfo=UTC),
            datetime(1970, 1, 1, tzinfo=UTC),
            datetime(2024, 3, 10, 7, 30, 0, 1, UTC),
            datetime(2024, 11, 3, 5, 30, tzinfo=UTC),
            datetime(9999, 1, 1, tzinfo=UTC),
        ],
    ),
    "n": (
        pa.timestamp("us"),
        [datetime(y, 1, 1) for y in (1500, 1970, 2024, 2025)] + [datetime(2024, 3, 10, 2, 30)],
    ),
    "c": (pa.decimal128(10, 2), [Decimal(v) for v in ("-1.00", "0.00", "0.01", "12.50", "99.99")]),
    "r": (pa.struct({"z": pa.int64()}), [{"z": 1}, {"z": None}, {"z": 2}, {"z": 3}, {"z": 4}]),
}
CONDITIONS = [
    "id = 3",
    "id IN (1, 4, 99)",
    "id <=> 2 OR id <=> NULL",
    "NOT (id > 2)",
    "i >= 0 AND i < 2147483647",
    "i = 1L OR l = -9223372036854775808",
    "u > 126 AND u < 255",
    "big > 9223372036854775808",
    "x > 1",
    "x >= 0.0",
    "x = 0.0",
    "x < 'NaN'",
    "x = double('NaN')",
    "NOT (x < 0)",
    "f <= -0.0F",
    "b",
    "NOT b",
    "b IS NULL",
    "s = 'it''s' OR s = 'a \"b\" \\\\'",
    "s > 'a' AND s <> 'é'",
    "s = '\\u0000x'",
    "s COLLATE UNICODE_CI = 'É'",
    "s LIKE '%b%'",
    "s IN ('', 'é', NULL)",
    "y = X'00'",
    "y > X'61'",
    "d = DATE'0001-01-01' OR d > DATE'2024-02-28'",
    "d <> DATE'1582-10-15'",
    "t = TIMESTAMP'2024-03-10 03:30:00.000001'",
    "t < TIMESTAMP'1600-01-01 00:00:00'",
    "t > TIMESTAMP'2024-11-03 01:00:00'",
    "n = TIMESTAMP_NTZ'2024-03-10 02:30:00'",
    "n < TIMESTAMP_NTZ'1600-01-01 00:00:00'",
    "c = 12.5",
    "c > 0.001 AND c < 99.991",
    "c IN (0.01BD, 99.99BD)",
    "r.z > 1",
    "r IS NULL",
    "cast(i AS string) = '1'",
    "try_add(l, 1L) > 0",
    "id < 3 AND s IS NOT NULL AND rand() >= 0",
]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Six rows, the last without values: some in the base table, some in files, some in the log."""
    place = str(tmp_path_factory.mktemp("pushed") / "table")
    schema = pa.schema({"id": pa.int64(), **{name: kind for name, (kind, _) in COLUMNS.items()}})
    table = mw.create_table(place, schema, "id", [mw.bucket("id", 2)])
    rows = [
        {"id": number, **{name: values[number] for name, (_, values) in COLUMNS.items()}}
        for number in range(5)
    ]
    rows.append({"id": 5, **dict.fromkeys(COLUMNS)})
    with table.writer() as writer:
        writer.upsert(pa.Table.from_pylist(rows[::-1], schema))
        writer.flush()
        table.merge()
        writer.upsert(pa.Table.from_pylist(rows[1:3], schema))
        writer.flush()
        writer.upsert(pa.Table.from_pylist(rows[2:4], schema))
    return place


def view(spark: SparkSession, uri: str, name: str, form: str) -> None:
    spark.read.format(form).load(uri).createOrReplaceTempView(name)


def test_every_condition_keeps_the_rows_that_spark_would(spark: SparkSession, uri: str) -> None:
    """NaN, -0.0, quotes, far dates, zones and nulls: as where Spark has all rows."""
    view(spark, uri, "jar", "memwal")
    view(spark, uri, "python", "memwal_python")
    # Of each condition a scan of its own, which is not worth compiling.
    given = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.adaptive.enabled": "false",
    }
    conditions = usual(CONDITIONS, 20)
    scans = (f"SELECT {n} AS n, id FROM jar WHERE {text}" for n, text in enumerate(conditions))
    with settings(spark, **given):
        found = spark.sql(" UNION ALL ".join(scans)).collect()
        right = spark.sql(f"SELECT id, {', '.join(conditions)} FROM python").collect()
    kept = Counter((conditions[row["n"]], row["id"]) for row in found)
    assert kept == Counter(
        (text, row[0])
        for row in right
        for text, met in zip(conditions, row[1:], strict=True)
        if met
    )
    assert len({condition for condition, _ in kept}) > len(conditions) - 4


def plan(spark: SparkSession, query: str) -> str:
    frame = spark.sql(query)
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_a_plan_shows_what_a_scan_reads(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    """Small tables are broadcast, and long texts are not."""
    view(spark, uri, "t", "memwal")
    version = mw.open_table(uri).version
    cases = {
        "SELECT s FROM t WHERE id > 3 AND x > 0": [
            "columns=[id, x, s]",
            'filters=[("x" IS NOT NULL), ("id" > 3)]',
            f"version={version}",
            "regions=2 of 2",
        ],
        "SELECT s FROM t WHERE id = 3": ["regions=1 of 2"],
        "SELECT count(*) FROM t": ["count, "],
        "SELECT count(*) FROM t WHERE b": ["columns=[b], "],
        "SELECT 1 FROM t": ["columns=[b], "],
        "SELECT s FROM t LIMIT 2": ["columns=[s], limit=2"],
        "SELECT t.s, u.b FROM t JOIN t u ON t.l = u.id": ["BroadcastHashJoin"],
        "SELECT t.s, u.s FROM long u JOIN long t ON t.id = u.id": ["SortMergeJoin"],
        "SELECT t.id FROM long u JOIN long t ON t.id = u.id": ["BroadcastHashJoin"],
    }
    schema = pa.schema({"id": pa.int64(), "s": pa.string()})
    long = mw.create_table(str(tmp_path / "long"), schema, "id")
    with long.writer() as writer:
        writer.upsert({"id": list(range(100)), "s": [randbytes(10_000).hex() for _ in range(100)]})
        writer.flush()
    long.merge()
    view(spark, long.uri, "long", "memwal")
    with settings(spark, **{"spark.sql.autoBroadcastJoinThreshold": "500k"}):
        missing = {
            query: [part for part in parts if part not in shown]
            for query, parts in cases.items()
            for shown in [plan(spark, query)]
        }
    assert {query: parts for query, parts in missing.items() if parts} == {}


def test_all_uses_of_a_relation_read_the_state_of_the_first(
    spark: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "table")
    table = mw.create_table(uri, pa.schema({"id": pa.int64(), "v": pa.int64()}), "id")
    with table.writer() as writer:
        writer.upsert({"id": [1, 2, 3], "v": [1, 1, 1]})
        frame = load(spark, uri)
        assert frame.where("id = 1").count() == 1
        writer.upsert({"id": [1, 4], "v": [2, 2]})
        frame.createOrReplaceTempView("t")
        joined = spark.sql("SELECT a.v, b.v FROM t a JOIN t b ON a.id = b.id WHERE b.v > 0")
        assert Counter(map(tuple, joined.collect())) == Counter({(1, 1): 3})
        writer.flush()
        assert frame.count() == 3
        assert frame.where("v = 2").count() == 0
        assert load(spark, uri).where("v = 2").count() == 2


def test_a_table_without_rows_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    mw.create_table(uri, pa.schema({"id": pa.int64(), "v": pa.int64()}), "id")
    frame = load(spark, uri)
    assert (frame.count(), frame.where("id = 1").count(), frame.collect()) == (0, 0, [])
    reader = spark.read.format("memwal").schema("id bigint, w bigint")
    assert "has no columns ['w']" in refusal(reader.load(uri).collect)


def test_the_ui_has_what_a_scan_read(spark: SparkSession, uri: str) -> None:
    view(spark, uri, "t", "memwal")
    spark.sql("SELECT s FROM t WHERE id = 3").collect()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # it fills the store
    store = spark._jsparkSession.sharedState().statusStore()
    last = store.executionsList().last()
    values = store.executionMetrics(last.executionId())
    shown = {}
    metrics = last.metrics()
    for number in range(metrics.size()):
        metric = metrics.apply(number)
        value = values.get(metric.accumulatorId())
        if value.isDefined():
            shown[metric.name()] = value.get()
    assert shown["regions read"] == shown["regions ruled out"] == "1"
    assert shown["version of the base table"] == str(mw.open_table(uri).version)
