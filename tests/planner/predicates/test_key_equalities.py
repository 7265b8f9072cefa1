"""Filters that pin the primary key are found, and only those."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from planner.predicates.tuple_domain import key_equalities
from tests.each import each
from tests.planner.predicates.said import Said

SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("big", pa.int64()),
        ("s", pa.string()),
        ("a b", pa.string()),
        ("ts", pa.timestamp("us")),
        ("ns", pa.timestamp("ns", "UTC")),
        ("d", pa.date32()),
        ("dec", pa.decimal128(38, 2)),
        ("b", pa.binary()),
        ("fb", pa.binary(2)),
        ("bo", pa.bool_()),
        ("v", pa.int64()),
    ]
)
SAID = Said(SCHEMA)


@each(
    "key, sql, expected",
    [
        ("id", "id = 3", [3]),
        ("id", "(t.id = -3)", [-3]),
        ("id", "3 = id", [3]),
        ("id", "((id = 1) OR (id = 2)) OR (id = 3)", [1, 2, 3]),
        ("id", "id IN (4, 3, 2, 1, 1)", [1, 2, 3, 4]),
        ("id", "id IN (1, NULL)", [1]),
        ("id", "id = 3 AND v > 5", [3]),
        ("id", "id = 1 AND v = 2 OR id = 2 AND v = 1", [1, 2]),
        ("id", "id BETWEEN 3 AND 3", [3]),
        ("id", "id > 2 AND id < 4", [3]),
        ("id", "(CAST(id AS BIGINT) = 3)", [3]),
        ("id", "(CAST(id AS DOUBLE) = 3.0)", [3]),
        ("id", "id IN (1, 3000000000)", [1]),
        ("s", "s = 'it''s'", ["it's"]),
        ("s", "s = ''", [""]),
        ("a b", '(t."a b" = \'é\')', ["é"]),
        ("ts", "ts = TIMESTAMP '1969-12-31 23:59:59.999999'", [-1]),
        ("ns", "ns = '1970-01-01T01:00:00.000000001+01:00'", [1]),
        ("d", "d = CAST('1970-01-03' AS DATE)", [2]),
        ("dec", '"dec" = 1.50', [Decimal("1.50")]),
        ("dec", "\"dec\" = arrow_cast('123456789012345678901234567890.12', 'Decimal128(38, 2)')",
         [Decimal("123456789012345678901234567890.12")]),
        ("b", "b = X'00ff'", [b"\0\xff"]),
        ("fb", "fb IN (X'0001', X'000102')", [b"\0\x01"]),
        ("bo", "bo", [True]),
        ("bo", "NOT bo", [False]),
    ],
)  # fmt: skip
def test_the_keys_of_a_lookup_are_found(key: str, sql: str, expected: list[object]) -> None:
    found = key_equalities(SAID(sql), [key], SCHEMA)
    assert found == [(value,) for value in expected]
    assert found is not None
    column = pa.array([value for (value,) in found], SCHEMA.field(key).type)
    assert column.null_count == 0 and len(column) == len(expected)


@each(
    "key, sql",
    [
        ("id", "id = 3.5"),
        ("id", "(CAST(id AS DOUBLE) = 3.5)"),
        ("id", "id > 3"),
        ("id", "id <> 3"),
        ("id", "NOT (id = 3)"),
        ("id", "id IS NULL"),
        ("id", "id = 3 OR v = 1"),
        ("id", "id = v"),
        ("id", "id + 1 = 3"),
        ("s", "CAST(s AS BIGINT) = 3"),
        ("id", "v = 3"),
        ("id", "id = NULL"),
        ("big", "(CAST(big AS DOUBLE) = 9007199254740992.0)"),
        ("big", "(CAST(big AS DOUBLE) = 9007199254740993.0)"),
        ("s", "lower(s) = 'x'"),
        ("s", "s LIKE 'a%'"),
        ("ts", "CAST(ts AS DATE) = CAST('2024-01-01' AS DATE)"),
        ("dec", '"dec" = 1.555'),
        ("id", "id = 3 AND id = 4"),
    ],
)
def test_other_filters_are_no_key_equality(key: str, sql: str) -> None:
    assert key_equalities(SAID(sql), [key], SCHEMA) is None


def test_a_composite_key_needs_all_its_columns() -> None:
    assert key_equalities(SAID("id = 1 AND s = 'x'"), ["s", "id"], SCHEMA) == [("x", 1)]
    assert key_equalities(SAID("id = 1"), ["s", "id"], SCHEMA) is None
    found = key_equalities(SAID("id IN (1, 2) AND (s = 'x' OR s = 'y')"), ["id", "s"], SCHEMA)
    assert found == [(1, "x"), (1, "y"), (2, "x"), (2, "y")]
    pairs = SAID("(id = 1 AND s = 'x') OR (id = 2 AND s = 'y')")
    assert key_equalities(pairs, ["id", "s"], SCHEMA) == [(1, "x"), (2, "y")]
    assert key_equalities([], ["id"], SCHEMA) is None


def test_ten_thousand_keys_are_found() -> None:
    sql = f"id IN ({', '.join(map(str, range(10_000)))})"
    assert key_equalities(SAID(sql), ["id"], SCHEMA) == [(n,) for n in range(10_000)]
