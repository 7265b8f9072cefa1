"""No filter on a column outside the key loses a row, whatever the column's type."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from unittest.mock import patch

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.each import each
from tests.soak import IS_SOAK

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("f64", pa.float64()),
        ("f32", pa.float32()),
        ("f16", pa.float16()),
        ("tiny", pa.int8()),
        ("u", pa.uint64()),
        ("bo", pa.bool_()),
        ("dec", pa.decimal128(20, 3)),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("fb", pa.binary(2)),
        ("d", pa.date32()),
        ("t", pa.time64("us")),
        ("ts", pa.timestamp("ms")),
        ("rome", pa.timestamp("us", "Europe/Rome")),
        ("ls", pa.list_(pa.int64())),
        ("st", pa.struct([("id", pa.int64()), ("f64", pa.float64())])),
    ]
)
LITERALS = {
    "f64": ["15.5", "15.2", "15.8", "24", "25", "24.5", "-0.0", "1e300", "CAST(15.5 AS REAL)"],
    "f32": ["15.5", "15.2", "0.1", "24", "25", "CAST(0.1 AS REAL)", "CAST(15.5 AS REAL)"],
    "f16": ["15.5", "15.2", "24", "25"],
    "tiny": ["3", "3.5", "-1", "300"],
    "u": ["18446744073709551615", "3", "-1", "2.5"],
    "bo": ["true", "false"],
    '"dec"': ["15.5", "15.555", "15.5555", "-3", "CAST(15.5 AS DOUBLE)"],
    "s": ["'a'", "''", "'é'", "'15.5'"],
    "b": ["X'61'", "X''"],
    "fb": ["X'6161'", "X'0000'"],
    "d": ["DATE '2024-01-31'", "DATE '1969-12-31'", "TIMESTAMP '2024-01-31 12:00:00'"],
    "t": ["TIME '12:00:00'", "TIME '00:00:00.5'"],
    "ts": ["TIMESTAMP '2024-01-31 12:00:00'", "TIMESTAMP '1969-12-31 23:59:59.9995'"],
    "rome": ["'2024-01-31T12:00:00+01:00'", "'2024-01-31 12:00:00'"],
    "ls": ["[1, 2]", "[]"],
    "st": ["{id: 1, f64: 15.5}"],
    "st['id']": ["1", "2", "30"],
    "st['f64']": ["15.5", "24"],
    "ls[1]": ["1", "2"],
}
NAMES = sorted(LITERALS)
_MOMENTS = [datetime.datetime(2024, 1, 31, 12), datetime.datetime(1969, 12, 31, 23, 59, 59, 999000)]
_FLOATS = [15.5, 24.5, 0.1, -0.0, 24.0, float("nan"), None]
_VALUES: dict[str, list[object]] = {
    "f64": [*_FLOATS, 1e300],
    "f32": list(_FLOATS),
    "f16": list(_FLOATS),
    "tiny": [3, -1, 127, None],
    "u": [2**64 - 1, 3, 0, None],
    "bo": [True, False, None],
    "dec": [Decimal("15.5"), Decimal("15.555"), Decimal("-3"), None],
    "s": ["a", "", "é", "15.5", None],
    "b": [b"a", b"", None],
    "fb": [b"aa", b"\0\0", None],
    "d": [*(m.date() for m in _MOMENTS), None],
    "t": [datetime.time(12), datetime.time(0, 0, 0, 500_000), None],
    "ts": [*_MOMENTS, None],
    "rome": [*(m.replace(tzinfo=datetime.UTC) for m in _MOMENTS), _MOMENTS[0], None],
    "ls": [[1, 2], [], [2], None],
    # No NULL in place of a struct: DataFusion then reads what pyarrow left in its fields.
    "st": [{"id": 1, "f64": 15.5}, {"id": 2, "f64": 0.1}, {"id": None, "f64": None}],
}
_OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")


def _simple(rng: Random, name: str) -> str:
    literals = LITERALS[name]
    match rng.randrange(6):
        case 0:
            word = rng.choice(("IN", "NOT IN"))
            return f"{name} {word} ({', '.join(rng.choices(literals, k=rng.randint(1, 5)))})"
        case 1:
            word = rng.choice(("BETWEEN", "NOT BETWEEN"))
            return f"{name} {word} {rng.choice(literals)} AND {rng.choice(literals)}"
        case 2:
            return f"{name} IS {rng.choice(('', 'NOT '))}NULL"
        case 3:
            low, high = rng.choices(literals, k=2)
            return f"({name} > {low} AND {name} < {high})"
    return f"{name} {rng.choice(_OPERATORS)} {rng.choice(literals)}"


def _condition(rng: Random, name: str) -> str:
    condition = _simple(rng, name)
    match rng.randrange(6):
        case 0:
            return f"NOT ({condition})"
        case 1:
            return f"({condition}) OR id = {rng.randrange(40)}"
        case 2:
            return f"({condition}) AND id < {rng.randrange(60)}"
        case 3:
            return f"({condition}) {rng.choice(('AND', 'OR'))} {_simple(rng, rng.choice(NAMES))}"
    return condition


def _rows() -> pa.Table:
    rng = Random(7)
    rows = [
        {"id": n, **{name: rng.choice(values) for name, values in _VALUES.items()}}
        for n in range(60)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


@pytest.fixture(scope="module", params=["unsharded", "bucket"])
def tables(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[datafusion.SessionContext, mw.Table]:
    """`expected` in memory and `t` with the same rows in its base, generations and MemTables."""
    folder: Path = tmp_path_factory.mktemp("by_type") / "t"
    regions = mw.bucket("id", 3) if request.param == "bucket" else None
    table = mw.create_table(folder, SCHEMA, "id", regions)
    rows = _rows()
    writer = table.writer()
    request.addfinalizer(writer.close)
    writer.upsert(rows.slice(0, 30))
    writer.flush()
    writer.upsert(rows.slice(30))
    context = datafusion.SessionContext()
    context.register_record_batches("expected", [rows.to_batches()])
    mw.register(context, "t", table)
    return context, table


def _ids(context: datafusion.SessionContext, name: str, condition: str) -> list[int] | None:
    """None where DataFusion itself refuses the condition."""
    try:
        found = context.sql(f"SELECT id FROM {name} WHERE {condition}").to_arrow_table()
    except Exception:
        if name != "expected":
            raise
        return None
    return sorted(found.column(0).to_pylist()) if found.num_columns else []


def _check(tables: tuple[datafusion.SessionContext, mw.Table], condition: str) -> bool:
    context, table = tables
    expected = _ids(context, "expected", condition)
    if expected is None:
        return False
    assert _ids(context, "t", condition) == expected, condition
    found = table.scan(["id"], filter=condition).read_all()
    assert sorted(found.column("id").to_pylist()) == expected, condition
    return True


@each("name", NAMES)
def test_random_conditions_keep_the_rows_that_datafusion_keeps(
    tables: tuple[datafusion.SessionContext, mw.Table], name: str
) -> None:
    rng = Random(f"conditions on {name}")
    assert sum(_check(tables, _condition(rng, name)) for _ in range(8 if IS_SOAK else 3)) > 0


@each(
    "condition",
    [
        "f64 = 15.5",
        "st['id'] = 2",
        "st['f64'] IN (15.5, 16.5)",
        "f64 IN (15.5)",
        "f64 > 15.2 AND f64 < 15.8",
        "f64 BETWEEN 15.2 AND 15.8",
        "f64 > 24 AND f64 < 25",
        "f32 = 15.5",
        "f32 = CAST(0.1 AS REAL)",
        "NOT (f32 <= 24 OR f32 >= 25)",
        "id IN (1, 2, 3, 4, 5, 6) AND f64 <> 0.3",
        "(id = 5 AND f64 <> 0.3) OR id = 7",
    ],
)
def test_fractions_are_found(
    tables: tuple[datafusion.SessionContext, mw.Table], condition: str
) -> None:
    assert _ids(tables[0], "expected", condition)
    assert _check(tables, condition)


def test_a_scan_needs_no_physical_plan_where_every_source_applies_its_filter(
    tables: tuple[datafusion.SessionContext, mw.Table],
) -> None:
    _, table = tables
    with patch.object(datafusion.DataFrame, "execute_stream", side_effect=AssertionError):
        for condition in ("f64 > 2", "id IN (1, 5) OR tiny = 3", "s LIKE 'a%' AND id < 5"):
            table.scan(filter=condition).read_all()
    for condition in ("true", "random() >= 0", "now() > TIMESTAMP '2020-01-01T00:00:00'"):
        assert table.scan(filter=condition).read_all().num_rows == len(_rows())
        assert table.scan(filter=condition, limit=2).read_all().num_rows == 2
    with pytest.raises(mw.InvalidCallError, match="nothing_of_that_name"):
        table.scan(filter="nothing_of_that_name = 1")


@pytest.mark.parametrize("condition", ["CAST(s AS INT) IS NULL", "CAST(s AS INT) IS NOT NULL"])
def test_a_cast_that_fails_does_so_wherever_the_row_lies(tmp_path: Path, condition: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", pa.string())])
    table = mw.create_table(tmp_path / "t", schema, primary_key="id")
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    query = f"SELECT id FROM t WHERE {condition}"
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [1, 2, 3], "s": ["1", "b", None]}, schema))
        for act in (lambda: None, writer.flush, table.merge):
            act()
            with pytest.raises(Exception, match="Cannot cast string 'b'"):
                context.sql(query).collect()
