"""Which conditions of Spark the jar's scans use, and as what."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pyarrow as pa

from memwal_sql.spark.driver.conditions import Tree, sql_of
from tests.each import each

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        'a "b"': pa.string(),
        "flag": pa.bool_(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"),
        "old": pa.timestamp("ms", "UTC"),
        "price": pa.decimal128(10, 2),
        "data": pa.binary(),
        "x": pa.float64(),
        "large": pa.uint64(),
        "s": pa.struct({"x": pa.int64()}),
    }
)


def column(*path: str) -> Tree:
    return {"column": list(path)}


def value(kind: str, text: str | None) -> Tree:
    return {"type": kind, "value": text}


def call(op: str, *arguments: Tree) -> Tree:
    return {"op": op, "arguments": list(arguments)}


ID_IS_1 = call("=", column("id"), value("bigint", "1"))
FLOAT = call(">", column("x"), value("double", "1.0"))
USED = {
    "an integer": (ID_IS_1, '("id" = 1)'),
    "a smaller one": (call("<=", column("id"), value("int", "-7")), '("id" <= -7)'),
    "quotes": (
        call("=", column('a "b"'), value("string", "it's")),
        '("a ""b""" = \'it\'\'s\')',
    ),
    "a boolean": (call("=", column("flag"), value("boolean", "true")), '("flag" = TRUE)'),
    "a date": (
        call("<", column("day"), value("date", "-719162")),
        "(\"day\" < arrow_cast(-719162, 'Date32'))",
    ),
    "a timestamp": (
        call(">=", column("at"), value("timestamp", "1")),
        '("at" >= arrow_cast(1, \'Timestamp(Microsecond, Some("UTC"))\'))',
    ),
    "a timestamp without a zone": (
        call(">=", column("local"), value("timestamp_ntz", "1")),
        "(\"local\" >= arrow_cast(1, 'Timestamp(Microsecond, None)'))",
    ),
    "a decimal": (
        call("=", column("price"), value("decimal(3,1)", "12.5")),
        "(\"price\" = arrow_cast('12.5', 'Decimal128(10, 2)'))",
    ),
    "bytes": (
        call("=", column("data"), value("binary", b64encode(b"\x00\xff").decode())),
        "(\"data\" = X'00ff')",
    ),
    "a null-safe comparison": (
        call("<=>", column("id"), value("bigint", "1")),
        '("id" IS NOT DISTINCT FROM 1)',
    ),
    "nulls of any type": (call("IS_NOT_NULL", column("s")), '("s" IS NOT NULL)'),
    "IN": (
        call("IN", column("id"), value("bigint", "1"), value("bigint", "2")),
        '("id" IN (1, 2))',
    ),
    "a negation": (call("NOT", ID_IS_1), '(NOT ("id" = 1))'),
    "a disjunction": (call("OR", ID_IS_1, ID_IS_1), '(("id" = 1) OR ("id" = 1))'),
}
LEFT_TO_SPARK: dict[str, Tree] = {
    "floats": FLOAT,
    "what has a float in it": call("OR", ID_IS_1, FLOAT),
    "a float negated": call("NOT", FLOAT),
    "a collation": call("=", column('a "b"'), value("string collate UNICODE_CI", "x")),
    "a control character": call("=", column('a "b"'), value("string", "a\x00")),
    "a long text": call("=", column('a "b"'), value("string", "x" * 2_000)),
    "another unit": call("=", column("old"), value("timestamp", "1")),
    "a decimal that the column can't hold": call(
        "<", column("price"), value("decimal(10,3)", "1.001")
    ),
    "a decimal that is too large": call("<", column("price"), value("decimal(10,0)", "123456789")),
    "a type of Arrow alone": call("=", column("large"), value("decimal(20,0)", "1")),
    "a field of a struct": call("=", column("s", "x"), value("bigint", "1")),
    "an unknown column": call("=", column("y"), value("bigint", "1")),
    "two columns": call("=", column("id"), column("id")),
    "NULL": call("=", column("id"), value("bigint", None)),
    "NULL among others": call("IN", column("id"), value("bigint", "1"), value("bigint", None)),
    "many values": call("IN", column("id"), *(value("bigint", str(n)) for n in range(2_000))),
    "a function": call("STARTS_WITH", column('a "b"'), value("string", "x")),
    "what has no form": {},
    "no column": call("=", {}, value("bigint", "1")),
}


@each("name", USED)
def test_a_condition_that_is_used(name: str) -> None:
    tree, text = USED[name]
    assert sql_of([tree], SCHEMA) == [text]


@each("name", LEFT_TO_SPARK)
def test_a_condition_that_is_left_to_spark(name: str) -> None:
    tree: Any = LEFT_TO_SPARK[name]
    assert sql_of([tree, ID_IS_1], SCHEMA) == ['("id" = 1)']
