"""What is pushed into Lance keeps the rows that DataFusion keeps, or is not pushed."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import datafusion
import lance
import pyarrow as pa
import pytest
from datafusion.unparser import Dialect, Unparser

from planner.predicates.lance_filter import lance_filter

_SECONDS = [0, None, -1, 1_704_067_200, 10**9, -(10**9)]


def _moments(unit: str, zone: str | None = None) -> pa.Array:
    factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    values = [None if v is None else v * factor for v in _SECONDS]
    return pa.array(values, pa.timestamp(unit, zone))


TABLE = pa.table(
    {
        "id": pa.array([1, 2, 3, None, -5, 5], pa.int32()),
        "big": pa.array([1, 2**53, 2**53 + 1, None, -(2**63), 2**63 - 1]),
        "u": pa.array([1, 2, 2**64 - 1, None, 2**63, 0], pa.uint64()),
        "tiny": pa.array([1, None, -128, 127, 0, 5], pa.int8()),
        "a b": ["x", None, "", "é😀\n", "it's", "X"],
        "Sx": ["x", None, "", "é😀\n", "it's", "X"],
        "s": ["x", None, "", "é😀\n", "it's", "a%b"],
        "order": ["a\\b", None, "a'b", "a%b", "", "\\"],
        "ls": pa.array(["x", None, "", "é", "it's", "X"], pa.large_string()),
        "sec": _moments("s"),
        "ts": _moments("us"),
        "ns": _moments("ns"),
        "utc": _moments("us", "UTC"),
        "rome": _moments("us", "Europe/Rome"),
        "d": pa.array([0, None, -1, 19_723, 10_000, -10_000], pa.date32()),
        "dec": pa.array(
            [None if v is None else Decimal(v) for v in ["1.5", None, "0", "-1.5", "9.99", "2"]],
            pa.decimal128(10, 2),
        ),
        "f": [1.5, None, float("nan"), -0.0, 0.0, float("inf")],
        "f32": pa.array([1.5, None, float("nan"), -0.0, 0.1, 2.5], pa.float32()),
        "b": [b"x", None, b"", b"\0", b"ab", b"it"],
        "fb": pa.array([b"abcd", None, b"abce", b"\0\0\0\0", b"zzzz", b"ab' "], pa.binary(4)),
        "bo": [True, False, None, True, False, None],
    }
)

Scan = Callable[[str], list[int]]

COMPARED = [
    ("id", "3"),
    ("id", "3.5"),
    ("id", "3.0"),
    ("id", "3000000000"),
    ("tiny", "-128"),
    ("tiny", "300"),
    ("big", "9223372036854775807"),
    ("big", "-9223372036854775808"),
    ("big", "9007199254740993"),
    ("big", "9007199254740993.0"),
    ("u", "18446744073709551615"),
    ("u", "9223372036854775808"),
    ("u", "-1"),
    ('"a b"', "'x'"),
    ('"Sx"', "'it''s'"),
    ("s", "''"),
    ("s", "'é😀\n'"),
    ("s", '"Sx"'),
    ('"order"', "'a\\b'"),
    ('"order"', "'\\'"),
    ("ls", "'x'"),
    ("sec", "TIMESTAMP '2024-01-01 00:00:00'"),
    ("ts", "TIMESTAMP '2024-01-01 00:00:00'"),
    ("ts", "TIMESTAMP '1969-12-31 23:59:59'"),
    ("ts", "TIMESTAMP '2024-01-01 00:00:00.0000005'"),
    ("ns", "TIMESTAMP '2024-01-01 00:00:00.000000001'"),
    ("utc", "'2024-01-01T01:00:00+01:00'"),
    ("rome", "'2024-01-01T01:00:00+01:00'"),
    ("rome", "'2024-01-01 01:00:00'"),
    ("d", "DATE '2024-01-01'"),
    ("d", "DATE '1942-08-15'"),
    ("CAST(ts AS DATE)", "DATE '2024-01-01'"),
    ('"dec"', "1.5"),
    ('"dec"', "1.555"),
    ('"dec"', "-1.5"),
    ("f", "0.0"),
    ("f", "-0.0"),
    ("f", "1.5"),
    ("f", "2"),
    ("f", "'NaN'"),
    ("f32", "0.1"),
    ("b", "X'6162'"),
    ("b", "X''"),
    ("fb", "X'61626364'"),
    ("bo", "true"),
]
SHAPES = [
    *[
        f"{left} {op} {right}"
        for left, right in COMPARED
        for op in ("=", "<>", "<", "<=", ">", ">=")
    ],
    *[f"{left} IS DISTINCT FROM {right}" for left, right in COMPARED],
    *[f"{left} IS NOT DISTINCT FROM {right}" for left, right in COMPARED],
    *[f"{left} IN ({right}, {right}, {right}, {right}, NULL)" for left, right in COMPARED],
    *[f"{left} NOT IN ({right}, {right}, {right}, {right})" for left, right in COMPARED],
    *[f"NOT ({left} > {right})" for left, right in COMPARED],
    *[f"({left} > {right}) IS NOT TRUE" for left, right in COMPARED],
    *[f"{left} IS NULL" for left, _ in COMPARED],
    *[f"{left} IS NOT NULL" for left, _ in COMPARED],
    "f IN (0.0, 1.5, 2.0, 3.0)",
    "id BETWEEN 1 AND 3",
    "id NOT BETWEEN 1 AND 3",
    "id IN (1, 2, 3)",
    "id IN (1, 2, 3, 4, 5)",
    "id NOT IN (1, 2, 3, 4, NULL)",
    "s IN ('a', 'x', 'c', 'd', NULL)",
    "id = 1 OR s = '' AND big > 5",
    "NOT (id = 1 AND s = 'x')",
    "NOT (id = 1 OR s = 'x')",
    "bo",
    "NOT bo",
    "bo IS TRUE",
    "bo IS NOT FALSE",
    "bo IS UNKNOWN",
    "(id = 1) = (big = 1)",
    "id = big",
    "id + 1 = 4",
    "s LIKE 'a%'",
    "s NOT LIKE 'x%'",
    "s ILIKE 'X%'",
    "s LIKE '_'",
    "s LIKE ''",
    "s LIKE 'a\\%b'",
    "ls LIKE 'x%'",
    "left(s, 1) = 'a'",
    "date_part('month', ts) = 1",
    "CASE WHEN id = 1 THEN true ELSE false END",
    "s ~ 'a.*'",
]


@pytest.fixture(scope="module", params=["plain", "indexed"])
def scan(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scan:
    path: Path = tmp_path_factory.mktemp("lance") / "table"
    dataset = lance.write_dataset(TABLE, str(path))
    if request.param == "indexed":
        for column in ("id", "big", "u", "s", "ts", "utc", "d", "dec", "f", "bo"):
            dataset.create_scalar_index(column, "BTREE")

    def rows(condition: str) -> list[int]:
        scanner = dataset.scanner(columns=[], with_row_id=True, filter=condition)
        return sorted(scanner.to_table().column("_rowid").to_pylist())

    return rows


@pytest.fixture(scope="module")
def context() -> datafusion.SessionContext:
    context = datafusion.SessionContext()
    numbered = TABLE.append_column("row", pa.array(range(len(TABLE))))
    context.register_record_batches("t", [numbered.to_batches()])
    return context


@pytest.mark.parametrize("condition", SHAPES)
def test_lance_keeps_the_rows_that_datafusion_keeps(
    condition: str, scan: Scan, context: datafusion.SessionContext
) -> None:
    frame = context.sql(f"SELECT row FROM t WHERE {condition}")
    table = frame.to_arrow_table()
    expected = sorted(table.column(0).to_pylist()) if table.num_columns else []
    for text in {condition, _unparsed(frame)} - {None}:
        assert text is not None
        if (pushed := lance_filter(text, TABLE.schema)) is not None:
            assert scan(pushed) == expected


def _unparsed(frame: datafusion.DataFrame) -> str | None:
    """The filter as DataFusion hands it to a table provider."""
    try:
        sql = Unparser(Dialect.default()).plan_to_sql(frame.optimized_logical_plan())
    except Exception:
        return None
    return sql.split(" WHERE ", 1)[1] if " WHERE " in sql else None


@pytest.mark.parametrize(
    "sql",
    [
        "t.id = 3",
        "(t.\"a b\" = 'x')",
        "((t.id = 1) OR (t.id = 2)) OR (t.id = 3)",
        "t.id IN (1, 2, 3, 4)",
        "(t.f > 1.5)",
        "(t.ts >= CAST('2024-01-01 00:00:00' AS TIMESTAMP))",
        "(t.utc < CAST('2024-01-01T00:00:00+00:00' AS TIMESTAMP))",
        '(t."dec" = 1.50)',
        "(t.b = X'6162')",
        "t.s LIKE 'a%'",
        "NOT t.bo",
        "t.s IS NOT NULL",
    ],
)
def test_common_filters_are_pushed(sql: str) -> None:
    assert lance_filter(sql, TABLE.schema) is not None


@pytest.mark.parametrize(
    "sql",
    [
        "(t.f = NaN)",
        "(t.f32 = 0.1)",
        "t.f IN (0.0, 1.0, 2.0, 3.0)",
        "(t.rome > CAST('2024-01-01T00:00:00+00:00' AS TIMESTAMP))",
        "random() < 0.5",
        "t.ts > now()",
        "my_function(t.id) = 3",
        "t.missing = 3",
        "t.id = 3 AND random() < 0.5",
        "(CAST(t.id AS DOUBLE) = 3.5)",
        "not even sql (",
    ],
)
def test_filters_that_lance_may_read_otherwise_are_not_pushed(sql: str) -> None:
    assert lance_filter(sql, TABLE.schema) is None


def test_columns_are_written_in_backquotes() -> None:
    """Lance takes a double-quoted name for a string and would keep no row."""
    assert lance_filter("t.\"a b\" = 'it''s'", TABLE.schema) == "`a b` = 'it''s'"


@pytest.mark.parametrize("sql", ["st.id = 3", "st.a.id IN (3, 4)", "st.id IS NULL", "t.st.id > 3"])
def test_a_field_of_a_struct_is_no_column_of_the_same_name(sql: str) -> None:
    """DataFusion's unparser writes `st['id']` like a qualified column."""
    schema = pa.schema([("id", pa.int64()), ("st", pa.struct([("id", pa.int64())]))])
    assert lance_filter(sql, schema) is None
