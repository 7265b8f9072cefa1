"""Every Spark type that a table can hold comes back as it went; the others are refused in time."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import memwal_sql as mw
from tests.model.writing import upsert_rows
from tests.spark.frames import load, refusal, save
from tests.spark.test_bad_input import refused_read, refused_write, source

HELD = """
    SELECT cast(1 AS bigint) AS id, true AS a, cast(1 AS tinyint) AS b, cast(2 AS smallint) AS c,
        cast(3 AS int) AS d, cast(1.5 AS float) AS e, cast(2.5 AS double) AS f,
        cast('1.50' AS decimal(38, 18)) AS g, 'text' AS h, cast('bytes' AS binary) AS i,
        date'2020-02-29' AS j, timestamp'2020-02-29 12:34:56.123456' AS k,
        timestamp_ntz'2020-02-29 12:34:56.123456' AS l, interval '1 02:03:04.5' day to second AS m,
        array(1, null, 3) AS o, array(array('a'), null) AS p,
        named_struct('x', 1, 'y', array('z')) AS q, map('k', 1.5D, 'n', null) AS r
    UNION ALL
    SELECT 2, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
        null, null, null
"""
# Struct literals have fields that are NOT NULL, also below a struct that is null.
NULL_STRUCTS = """
    SELECT 1L AS id, named_struct('x', 1) AS top, array(named_struct('x', 1), null) AS list,
        map('a', named_struct('x', 1), 'b', null) AS map,
        named_struct('s', if(rand() < 2, null, named_struct('x', 1))) AS struct,
        array(array(null, named_struct('x', 1)), null) AS lists,
        array(map('a', array(named_struct('x', named_struct('y', 1)), null))) AS deep
    UNION ALL
    SELECT 2, null, null, null, null, null, null
"""
REFUSED = {
    "interval year to month": "interval '1-2' year to month",
    "variant": "parse_json('{\"a\": 1}')",
    "void": "null",
    "array<void>": "array(null)",
    "collated": "'text' COLLATE UTF8_LCASE",
    "collated keys": "map('text' COLLATE UNICODE, 1)",
}


def test_every_type_comes_back_as_it_went(spark: SparkSession, uri: str) -> None:
    frame = spark.sql(HELD)
    save(frame, uri, primaryKey="id", regions="bucket(id, 2)")
    before = load(spark, uri)
    kinds = {field.name: field.dataType for field in frame.schema.toNullable().fields}
    assert {field.name: field.dataType for field in before.schema.fields} == kinds
    assert sorted(before.collect()) == sorted(frame.collect())
    table = mw.open_table(uri)
    with table.writer() as writer:
        writer.flush()
    table.merge()
    assert sorted(load(spark, uri).collect()) == sorted(frame.collect())


def test_a_type_that_no_table_holds_is_refused_on_the_driver(spark: SparkSession, uri: str) -> None:
    for kind, text in REFUSED.items():
        schema = spark.sql(f"SELECT 1 AS id, {text} AS odd").schema
        message = refused_write(
            StructType.fromJson(json.loads(schema.json())), uri, primaryKey="id"
        )
        assert "can't hold the columns {'odd'" in message, kind
        assert ("to_json(odd)" if kind == "variant" else "CAST(odd AS STRING)") in message
    odd = spark.sql("SELECT 1 AS id, 'text' COLLATE UTF8_LCASE AS odd")
    message = refusal(lambda: save(odd, uri, primaryKey="id"))
    assert "can't hold the columns {'odd'" in message
    assert "InvalidCallError" in message or "UnsupportedError" in message


def test_null_structs_at_any_depth_come_back(spark: SparkSession, uri: str) -> None:
    frame = spark.sql(NULL_STRUCTS)
    save(frame, uri, primaryKey="id")
    assert sorted(load(spark, uri).collect()) == sorted(frame.collect())
    table = mw.open_table(uri)
    with table.writer() as writer:
        writer.flush()
    table.merge()
    assert sorted(load(spark, uri).collect()) == sorted(frame.collect())


def test_arrow_types_that_spark_lacks_are_read_as_wider_ones(spark: SparkSession, uri: str) -> None:
    schema = pa.schema(
        {
            "id": pa.int64(),
            "small": pa.uint8(),
            "large": pa.uint64(),
            "half": pa.float16(),
            "word": pa.dictionary(pa.int32(), pa.string()),
            "long": pa.large_string(),
            "vector": pa.list_(pa.float32(), 2),
            "clock": pa.time64("us"),
            "money": pa.decimal256(20, 2),
            "whole": pa.decimal256(38, 0),
            "counts": pa.map_(pa.uint8(), pa.uint16()),
            "moneys": pa.list_(pa.map_(pa.string(), pa.decimal256(5, 2))),
            "nothing": pa.null(),
            "nothings": pa.list_(pa.null()),
        }
    )
    table = mw.create_table(uri, schema, "id")
    row = {
        "id": 1,
        "small": 255,
        "large": 2**64 - 1,
        "half": 0.5,
        "word": "w",
        "long": "l",
        "vector": [1.0, 2.0],
        "clock": None,
        "money": Decimal("-123.45"),
        "whole": Decimal(10**38 - 1),
        "counts": {255: 65535, 0: None},
        "moneys": [{"a": Decimal("1.25")}, None],
        "nothing": None,
        "nothings": [None],
    }
    upsert_rows(table, pa.Table.from_pylist([row], schema))
    (found,) = load(spark, uri).drop("clock").collect()
    assert found.asDict() == {name: value for name, value in row.items() if name != "clock"}
    (found,) = load(spark, uri, query="SELECT money, counts FROM memwal").collect()
    assert found.asDict() == {name: row[name] for name in ("money", "counts")}


def test_types_that_spark_lacks_are_refused_by_the_column_s_name(uri: str) -> None:
    schema = pa.schema(
        {"id": pa.int64(), "big": pa.decimal256(50, 2), "bigs": pa.list_(pa.decimal256(39, 0))}
    )
    mw.create_table(uri, schema, "id")
    message = refused_read(uri)
    assert "Spark has no type for the columns" in message
    assert "'big': \"decimal256(50, 2)" in message and "'bigs': \"list<" in message
    assert "38 digits" in message
    assert refused_read(uri, query="SELECT big + 1 AS sum FROM memwal").count("'sum'") == 1
    source(uri, {"columns": "id"}).schema()


def test_a_query_from_before_a_column_was_widened_never_rounds(
    spark: SparkSession, uri: str
) -> None:
    table = mw.create_table(uri, pa.schema({"id": pa.int64(), "f": pa.float32()}), "id")
    upsert_rows(table, [{"id": 1, "f": 0.5}])
    before = load(spark, uri)
    table.set_type("f", pa.float64())
    save(spark.sql("SELECT cast(2 AS bigint) AS id, cast(0.25 AS float) AS f"), uri)
    upsert_rows(table, [{"id": 3, "f": 0.1}])
    assert "f' is double by now" in refusal(before.collect)
    assert sorted(load(spark, uri).collect()) == [(1, 0.5), (2, 0.25), (3, 0.1)]
