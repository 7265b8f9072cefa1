"""A folder of tables as a catalog of Spark, by the jar."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import memwal_sql as mw
from tests.spark.catalog.conftest import SECRET, Sql
from tests.spark.conftest import needs_jar

pytestmark = needs_jar


def test_tables_are_made_written_read_changed_and_dropped(sql: Sql, tmp_path: Path) -> None:
    sql(
        "CREATE TABLE x.t (id BIGINT, name STRING COMMENT 'full', n INT DEFAULT 7) "
        "PARTITIONED BY (bucket(2, id)) COMMENT 'all' TBLPROPERTIES ('primaryKey' = 'id')"
    )
    sql("INSERT INTO x.t VALUES (1, 'a', 1), (2, 'b', 2)")
    sql("INSERT INTO x.t (id, name) VALUES (2, 'c'), (3, 'd')")  # which replaces a row
    assert sql("SELECT * FROM x.t ORDER BY id") == [(1, "a", 1), (2, "c", 7), (3, "d", 7)]
    table = mw.open_table(tmp_path / "t.lance")
    version, at = table.snapshot_regions(), table.version
    assert sql(f"SELECT count(*) FROM x.t VERSION AS OF {version}") == [(0,)]  # not flushed then
    table.checkpoint("before")
    assert max(sql("SELECT version FROM x.t.history")) == max(
        sql("SELECT version FROM x.`t$history`")
    )
    assert sql("SELECT name, kind FROM x.t.snapshots") == [("before", "checkpoint")]

    sql("ALTER TABLE x.t ADD COLUMNS (a INT, b STRING)")
    sql("ALTER TABLE x.t ALTER COLUMN a TYPE BIGINT")
    sql("ALTER TABLE x.t RENAME COLUMN b TO c")
    sql("ALTER TABLE x.t ALTER COLUMN c SET DEFAULT 'new'")
    sql("INSERT OVERWRITE x.t (id, name) VALUES (9, 'z')")
    assert sql("SELECT * FROM x.t") == [(9, "z", 7, None, "new")]
    assert len(sql("SELECT * FROM x.t VERSION AS OF 'before'")) == 3
    sql("ALTER TABLE x.t DROP COLUMN c")

    about = {row[0]: row for row in sql("DESCRIBE EXTENDED x.t")}
    assert about["name"] == ("name", "string", "full")
    assert about["Part 0"][1] == "bucket(2, id)"
    assert about["Comment"][1] == "all"
    assert about["Location"][1] == f"{tmp_path}/t.lance"
    assert "PRIMARY KEY (id)" in about["primary_key"][1]
    properties = dict(sql("SHOW TBLPROPERTIES x.t"))
    assert properties["primaryKey"] == "id"
    assert int(properties["version"]) > at
    ((shown,),) = sql("SHOW CREATE TABLE x.t")
    sql(shown.replace(".t (", ".u ("))
    ((again,),) = sql("SHOW CREATE TABLE x.u")
    assert again.partition("'version'")[0] == shown.partition("'version'")[0].replace(
        ".t (", ".u ("
    )
    sql("DROP TABLE x.u PURGE")

    sql("TRUNCATE TABLE x.t")
    assert sql("SELECT count(*) FROM x.t") == [(0,)]
    assert [row[1] for row in sql("SHOW TABLES IN x")] == ["t"]
    sql("DROP TABLE x.t")
    assert not list(tmp_path.glob("t.lance/_versions/*"))


def test_queries_and_frames_make_and_replace_tables(
    spark: SparkSession, lake: str, sql: Sql
) -> None:
    rows = spark.range(4).select("id", sf.lit("a").alias("val"))
    sql("CREATE TABLE x.a TBLPROPERTIES ('primaryKey' = 'id') AS SELECT 1L id, 'q' val")
    rows.write.option("primaryKey", "id").saveAsTable(f"{lake}.b")
    made = rows.writeTo(f"{lake}.c").using("memwal").tableProperty("primaryKey", "id")
    made.partitionedBy(sf.partitioning.bucket(2, "id")).create()
    rows.writeTo(f"{lake}.a").append()
    for name in "abc":
        assert spark.read.table(f"{lake}.{name}").where("id < 3").count() == 3
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        sql("CREATE TABLE x.d TBLPROPERTIES ('primaryKey' = 'id') AS SELECT 1 div 0 id")
    assert sql("SHOW TABLES IN x LIKE 'd'") == []

    rows.limit(1).write.mode("overwrite").saveAsTable(f"{lake}.c")
    sql("CREATE OR REPLACE TABLE x.a AS SELECT 7L id, 'r' val")
    assert sql("SELECT * FROM x.a") == [(7, "r")]
    assert sql("SELECT count(*) FROM x.c") == [(1,)]
    assert dict(sql("SHOW TBLPROPERTIES x.c"))["regions"] == "bucket(id, 2)"
    frame = spark.read.table(f"{lake}.c")
    assert frame.join(frame.withColumnRenamed("val", "other"), "id").count() == 1
    sql("INSERT INTO x.c VALUES (8, 's'), (9, 't')")  # an action reads current rows
    assert frame.count() == 3
    assert frame.where("id > 7").join(frame.withColumnRenamed("val", "other"), "id").count() == 2
    with pytest.raises(PySparkException, match="exists, with other columns"):
        sql("CREATE OR REPLACE TABLE x.a AS SELECT 7L id, 1 val")
    assert sql("SELECT * FROM x.a") == [(7, "r")]


def test_a_cast_in_a_default_is_what_spark_makes_of_it(spark: SparkSession, sql: Sql) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    casts = {
        "n BIGINT": "CAST(CAST(1.9 AS INT) AS BIGINT)",
        "text STRING": "CAST(CAST(1.9 AS INT) AS STRING)",
        "at TIMESTAMP": "CAST(DATE'2026-01-31' AS TIMESTAMP)",
        "day DATE": "CAST('2026-01-31' AS DATE)",
        "price DECIMAL(9, 2)": "1.5",
        "half DOUBLE": "0.5D",
        "is_new BOOLEAN": "true",
    }
    try:
        columns = [f"{column} DEFAULT {cast}" for column, cast in casts.items()]
        sql(f"CREATE TABLE x.t (id INT PRIMARY KEY, {', '.join(columns)})")
        sql("INSERT INTO x.t (id) VALUES (1)")
        for column, cast in casts.items():
            name, kind = column.split(" ", 1)
            found = sql(f"SELECT {name} <=> CAST({cast} AS {kind}) FROM x.t")
            assert found == [(True,)], column
        spark.conf.set("spark.sql.timeType.enabled", "true")
        with pytest.raises(PySparkException, match=r"no default can have, TIME"):
            sql("CREATE TABLE x.u (id INT PRIMARY KEY, v TIME DEFAULT TIME'01:02:03')")
    finally:
        spark.conf.unset("spark.sql.timeType.enabled")
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_table_that_others_use_outlives_the_statement_that_made_it(
    spark: SparkSession, lake: str, sql: Sql, tmp_path: Path
) -> None:
    uri = str(tmp_path / "t.lance")

    def write(again: bool) -> Callable[[int], int]:
        def fail(_: int) -> int:
            if again:
                mw.drop_table(uri)
                mw.create_table(uri, pa.schema({"id": pa.int32()}), "id")
            else:
                with mw.open_table(uri).writer() as writer:
                    writer.upsert(pa.table({"id": pa.array([7], pa.int32())}))
            raise ValueError("the query fails")

        return fail

    for again, rows in ((False, [(7,)]), (True, [])):
        fail = sf.udf(write(again), "int", useArrow=False)
        frame = spark.range(1, numPartitions=1).select(fail("id").alias("id"))
        with pytest.raises(PySparkException, match="the query fails"):
            frame.writeTo(f"{lake}.t").tableProperty("primaryKey", "id").create()
        assert sql("SELECT * FROM x.t") == rows
        sql("DROP TABLE x.t")


def test_frames_and_settings_of_a_catalog(
    spark: SparkSession, lake: str, sql: Sql, tmp_path: Path
) -> None:
    spark.conf.set(f"spark.sql.catalog.{lake}.consistency", "strong")
    made = "CREATE TABLE x.t (id INT PRIMARY KEY, n INT)"
    sql(made)
    sql("INSERT INTO x.t VALUES (1, 1), (2, 2)")
    assert sql("SELECT count(*) FROM x.t.history")[0][0] > 0
    frame = spark.read.table(f"{lake}.t")
    loaded = spark.read.format("memwal").load(str(tmp_path / "t.lance"))
    assert (frame.count(), loaded.count()) == (2, 2)
    sql("INSERT INTO x.t VALUES (3, 3)")
    assert (frame.count(), loaded.count()) == (3, 2)  # the second has one snapshot
    sql("ALTER TABLE x.t ALTER COLUMN n TYPE BIGINT")
    with pytest.raises(PySparkException, match="COLUMNS_MISMATCH"):
        frame.count()
    frame = spark.read.table(f"{lake}.t")
    sql("DROP TABLE x.t")
    sql(made.replace("n INT", "n BIGINT"))
    with pytest.raises(PySparkException, match="TABLE_ID_MISMATCH"):
        frame.count()


def test_rows_are_deleted_by_conditions(sql: Sql) -> None:
    sql(
        "CREATE TABLE x.t (id INT, day DATE, val STRING, PRIMARY KEY (id)) "
        "PARTITIONED BY (bucket(2, id))"
    )
    texts = ["NULL", "'a'", "'b'"]
    rows = [f"({n}, DATE'2026-01-01' + {n % 5}, {texts[n % 3]})" for n in range(20)]
    sql(f"INSERT INTO x.t VALUES {', '.join(rows)}")
    for condition in (
        "id = 3",
        "id < 2 OR val = 'b' AND id > 15",
        "NOT (val = 'a') AND day = DATE'2026-01-03'",
        "val IS NULL AND id NOT IN (6, 9)",
        "id BETWEEN 4 AND 6",
    ):
        left = sql(f"SELECT * FROM x.t WHERE NOT coalesce({condition}, false) ORDER BY id")
        sql(f"DELETE FROM x.t WHERE {condition}")
        assert sql("SELECT * FROM x.t ORDER BY id") == left, condition
    assert 5 < len(left) < 12
    sql("DELETE FROM x.t")
    assert sql("SELECT * FROM x.t") == []


REFUSED = [
    ("CREATE TABLE x.t (id BIGINT) TBLPROPERTIES ('primaryKey' = 'id')", "ALREADY_EXISTS"),
    ("CREATE TABLE x.u (id BIGINT)", "u needs a primary key"),
    ("CREATE TABLE x.`../u` (id BIGINT PRIMARY KEY)", "letters, digits, dots"),
    ("CREATE TABLE x.u (id BIGINT PRIMARY KEY, v VARCHAR(3))", "write STRING"),
    ("CREATE TABLE x.u (id BIGINT PRIMARY KEY, v INTERVAL YEAR)", "can't hold the columns"),
    ("CREATE TABLE x.u (id BIGINT PRIMARY KEY, v INT CHECK (v > 0))", "checks no constraint"),
    (
        "CREATE TABLE x.u (id BIGINT PRIMARY KEY, v DATE DEFAULT current_date())",
        "is not a constant",
    ),
    ("CREATE TABLE x.u (id INT PRIMARY KEY, v BINARY DEFAULT X'0102')", "no default .* BINARY"),
    ("ALTER TABLE x.t ALTER COLUMN raw SET DEFAULT X'41'", "no default .* BINARY"),
    ("CREATE TABLE x.u (id BIGINT PRIMARY KEY) LOCATION '/elsewhere'", "leave LOCATION"),
    ("CREATE TABLE x.u (id BIGINT PRIMARY KEY) USING orc", "tables of memwal only"),
    ("CREATE TABLE x.u (d DATE PRIMARY KEY) PARTITIONED BY (months(d))", "calendar date"),
    ("CREATE TABLE x.n.u (id BIGINT PRIMARY KEY)", "SCHEMA_NOT_FOUND"),
    ("CREATE NAMESPACE x.n", "one folder of tables, without namespaces"),
    ("SELECT * FROM x.u", "TABLE_OR_VIEW_NOT_FOUND"),
    ("SELECT * FROM x.u.history", "TABLE_OR_VIEW_NOT_FOUND"),
    ("SELECT * FROM x.t VERSION AS OF 99", "InvalidCallError: .* has no version 99"),
    ("SELECT * FROM x.t TIMESTAMP AS OF '2020-01-01'", "before the oldest version"),
    ("INSERT INTO x.t.history SELECT * FROM x.t.history", "does not support append"),
    ("ALTER TABLE x.t ALTER COLUMN val TYPE BIGINT", "NOT_SUPPORTED_CHANGE_COLUMN"),
    ("ALTER TABLE x.t DROP COLUMN id", "part of the primary key"),
    ("ALTER TABLE x.t ADD COLUMN n INT FIRST", "stay in their order"),
    ("ALTER TABLE x.t SET TBLPROPERTIES ('primaryKey' = 'val')", "no properties that can change"),
    ("ALTER TABLE x.t RENAME TO x.u", "can't be renamed in one step"),
    ("DROP TABLE x.u", "TABLE_OR_VIEW_NOT_FOUND"),
    ("UPDATE x.t SET id = NULL", "NOT_NULL_ASSERT_VIOLATION"),
    ("UPDATE x.t VERSION AS OF 1 SET val = 'b'", "PARSE_SYNTAX_ERROR"),
]


def test_what_can_not_be_done_says_so_and_shows_no_secret(
    spark: SparkSession, lake: str, sql: Sql, tmp_path: Path
) -> None:
    schema = pa.schema(
        {"id": pa.int64(), "val": pa.string(), "d": pa.float64(), "raw": pa.binary()}
    )
    table = mw.create_table(tmp_path / "t.lance", schema, "id")
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [1], "val": ["a"], "d": [0.5], "raw": [b"b"]}))
    for statement, words in REFUSED:
        with pytest.raises(PySparkException, match=words) as caught:
            sql(statement)
        assert SECRET not in str(caught.value), statement
    assert sql("SELECT * FROM x.t") == [(1, "a", 0.5, b"b")]
    assert [path.name for path in tmp_path.glob("*")] == ["t.lance"]
    for statement in ("EXPLAIN EXTENDED SELECT * FROM x.t", "DESCRIBE EXTENDED x.t"):
        assert SECRET not in str(sql(statement))
    for setting, words in (
        ({}, "needs spark.sql.catalog.wrong0.root"),
        ({"root": "/tmp", "storage": SECRET}, "no setting spark.sql.catalog.wrong1.storage"),
    ):
        name = f"wrong{len(setting) // 2}"
        spark.conf.set(f"spark.sql.catalog.{name}", "io.memwal.spark.MemwalCatalog")
        for key, value in setting.items():
            spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
        with pytest.raises(PySparkException, match=words) as caught:
            spark.sql(f"SHOW TABLES IN {name}")
        assert SECRET not in str(caught.value)
