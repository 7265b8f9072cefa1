"""Pruning never drops a region with a matching row, and drops what it obviously can."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from random import Random
from uuid import UUID

import datafusion
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.model import RegionSources
from planner.regions import factories as mw
from planner.regions.check import validate
from planner.regions.field import RegionField
from planner.regions.pruning import prune
from planner.regions.spec import RegionSpec
from planner.regions.text import spec_of
from tests.each import each
from tests.planner.predicates.said import Said
from tests.soak import SOAK

SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("big", pa.int64()),
        ("s", pa.string()),
        ("ts", pa.timestamp("us")),
        ("utc", pa.timestamp("ms", "UTC")),
        ("rome", pa.timestamp("ns", "Europe/Rome")),
        ("d", pa.date32()),
        ("dec", pa.decimal128(10, 2)),
        ("b", pa.binary()),
        ("bo", pa.bool_()),
    ]
)
FIELDS = [
    mw.identity("id"),
    mw.identity("s"),
    mw.identity("ts"),
    mw.identity("rome"),
    mw.identity("d"),
    mw.identity("dec"),
    mw.identity("b"),
    mw.identity("bo"),
    *[part(column) for part in (mw.year, mw.month, mw.day, mw.hour) for column in ("ts", "rome")],
    mw.month("d"),
    mw.year("utc"),
    mw.truncate("id", 3),
    mw.truncate("big", 7),
    mw.truncate("s", 1),
    mw.truncate("s", 2),
    mw.truncate("dec", 2),
    mw.bucket("id", 3),
    mw.bucket("s", 3),
    mw.bucket("dec", 3),
    mw.bucket("d", 3),
    mw.bucket("bo", 3),
    mw.multi_bucket(["id", "s"], 4),
    mw.expression("col0 % 3", "id"),
    mw.expression("upper(col0)", "s"),
    mw.expression("coalesce(col0, -1) + col1", "id", "big"),
    RegionField("native", ("s",), transform="bucket", parameters={"num_buckets": "3"}, native=True),
    RegionField("one", (), transform="unsharded", result_type="int32", native=True),
]
NUMBERS = [0, 1, 2, 3, -1, -4, 7, 8, 100]
TEXTS = ["", "a", "ab", "abc", "b", "é", "\U0010ffff", "'"]
MOMENTS = [
    "1969-12-31 23:59:59.999999",
    "1970-01-01 00:00:00",
    "2024-01-31 22:30:00",
    "2024-01-31 23:30:00",
    "2024-02-29 12:00:00",
    "2025-01-01 00:00:00",
]
LITERALS = {
    "id": [*map(str, NUMBERS), "3.0", "2.5", "3000000000", "NULL"],
    "big": [*map(str, NUMBERS), "7.0", "9007199254740993.0", "NULL"],
    "s": ["'" + text.replace("'", "''") + "'" for text in TEXTS],
    "ts": [f"TIMESTAMP '{m}'" for m in MOMENTS],
    "utc": [f"'{m.replace(' ', 'T')}+01:00'" for m in MOMENTS],
    "rome": [f"'{m.replace(' ', 'T')}+01:00'" for m in MOMENTS],
    "d": [f"DATE '{m[:10]}'" for m in MOMENTS],
    "CAST(ts AS DATE)": [f"DATE '{m[:10]}'" for m in MOMENTS],
    "CAST(d AS TIMESTAMP)": [f"TIMESTAMP '{m}'" for m in MOMENTS],
    '"dec"': ["0", "1.5", "-1.50", "2", "1.555", "-3.99"],
    "b": ["X''", "X'61'", "X'6162'"],
    "bo": ["true", "false"],
    "CAST(id AS BIGINT)": [*map(str, NUMBERS)],
    "CAST(id AS DOUBLE)": ["3.0", "2.5", "-4"],
}
NAMES = sorted(LITERALS)
SAID = Said(SCHEMA)
CONTEXT = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))


def _utc(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)


COLUMNS = {
    "id": NUMBERS,
    "big": [*NUMBERS, 2**53, 2**53 + 1],
    "s": TEXTS,
    "ts": [_utc(m).replace(tzinfo=None) for m in MOMENTS],
    "utc": [_utc(m).replace(microsecond=0) for m in MOMENTS],
    "rome": [_utc(m) for m in MOMENTS],
    "d": [_utc(m).date() for m in MOMENTS],
    "dec": [*map(Decimal, ["0", "1.5", "-1.5", "2", "-3.99"])],
    "b": [b"", b"a", b"ab"],
    "bo": [True, False],
}


@cache
def _table() -> pa.Table:
    """Rows that have every value of a column, NULL too, beside several ones of the others."""
    rng = Random("rows")
    values = [[*COLUMNS[name], None] for name in SCHEMA.names]
    return pa.table([rng.choices(some, k=200) for some in values], schema=SCHEMA)


@cache
def _layouts() -> list[tuple[RegionSpec, list[RegionSources], list[int]]]:
    """Specs of each field and of some pairs, with the regions of the rows and each row's region."""
    pairs = [[one, other] for one, other in zip(FIELDS, FIELDS[9:], strict=False)]
    specs = [validate(spec_of(fields, 1), SCHEMA, SCHEMA.names) for fields in [*FIELDS, *pairs]]
    layouts = []
    for spec in specs:
        distinct, index = spec.assign(_table())
        regions = [
            RegionSources(UUID(int=at), str(at), 1, values, ())
            for at, values in enumerate(spec.values_of(distinct))
        ]
        layouts.append((spec, regions, list(index)))
    return layouts


@st.composite
def _condition(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(NAMES))
    literal = st.sampled_from(LITERALS[name])
    kind = draw(st.integers(0, 8))
    if kind <= 3:
        op = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
        return f"{name} {op} {draw(literal)}"
    if kind == 4:
        word = draw(st.sampled_from(["IN", "NOT IN"]))
        return f"{name} {word} ({', '.join(draw(st.lists(literal, min_size=1, max_size=5)))})"
    if kind == 5:
        word = draw(st.sampled_from(["BETWEEN", "NOT BETWEEN"]))
        return f"{name} {word} {draw(literal)} AND {draw(literal)}"
    if kind == 6:
        word = draw(st.sampled_from(["IS NULL", "IS NOT NULL"]))
        return f"{name} {word}"
    if kind == 7:
        word = draw(st.sampled_from(["IS DISTINCT FROM", "IS NOT DISTINCT FROM"]))
        # DataFusion reads what follows FROM up to the end: an AND would be part of it.
        return f"({name} {word} {draw(literal | st.just('NULL'))})"
    word = draw(st.sampled_from(["LIKE", "NOT LIKE", "ILIKE"]))
    pattern = draw(st.sampled_from(["a%", "ab", "%b", "A_", "", "\U0010ffff%"]))
    return f"s {word} '{pattern}'"


CONDITIONS = st.recursive(
    _condition(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: f"({p[0]} AND {p[1]})"),
        st.tuples(inner, inner).map(lambda p: f"({p[0]} OR {p[1]})"),
        inner.map(lambda p: f"NOT ({p})"),
        inner.map(lambda p: f"(({p}) IS TRUE)"),
        inner.map(lambda p: f"(({p}) IS NOT TRUE)"),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@given(condition=CONDITIONS)
@settings(max_examples=150 * SOAK, deadline=None)
def test_no_condition_prunes_a_region_with_a_matching_row(condition: str) -> None:
    """Specification 1, "Region Pruning"."""
    if not CONTEXT.table_exist("t"):
        numbered = _table().append_column("row", pa.array(range(len(_table()))))
        CONTEXT.register_record_batches("t", [numbered.to_batches()])
    try:
        matching = CONTEXT.sql(f"SELECT row FROM t WHERE {condition}").to_arrow_table()
    except Exception:
        return  # DataFusion refuses it
    rows = matching.column(0).to_pylist() if matching.num_columns else []
    predicates = SAID(condition)
    for spec, regions, region_of in _layouts():
        kept = {int(region.name) for region in prune(predicates, regions, [spec], SCHEMA)}
        assert {region_of[row] for row in rows} <= kept, (condition, spec.field_ids)


def _kept(
    field: RegionField | list[RegionField], values: Sequence[object], sql: str
) -> list[object]:
    """The values of the (first) field whose regions stay."""
    spec = validate(spec_of(field, 1), SCHEMA, SCHEMA.names)
    name = spec.field_ids[0]
    regions = [
        RegionSources(UUID(int=at), str(at), 1, {name: value}, ())
        for at, value in enumerate(values)
    ]
    return [r.values[name] for r in prune(SAID(sql), regions, [spec], SCHEMA) if r.values]


@each("field, values, sql, expected", [
        (mw.identity("s"), ["a", "b", "c", None], "s = 'b'", ["b"]),
        (mw.identity("s"), ["a", "b", "c", None], "NOT (s = 'b')", ["a", "c"]),
        (mw.identity("s"), ["a", "b", "c", None], "s IS NULL", [None]),
        (mw.identity("s"), ["a", "b", "c", None], "s IS NOT NULL", ["a", "b", "c"]),
        (mw.identity("s"), ["a", "b", None], "s IS DISTINCT FROM 'b'", ["a", None]),
        (mw.identity("s"), ["a", "b", None], "s IS NOT DISTINCT FROM 'b'", ["b"]),
        (mw.identity("s"), ["a", "b", None], "(s = 'b') IS NOT TRUE", ["a", "b", None]),
        (mw.identity("s"), ["a", "b", None], "s NOT IN ('a', 'c', 'd', 'e')", ["b"]),
        (mw.identity("s"), ["a", "ab", "b"], "s LIKE 'a%'", ["a", "ab"]),
        (mw.identity("s"), ["a", "b", "c"], "s IN ('a', 'x', 'y', 'c')", ["a", "c"]),
        (mw.identity("id"), [1, 2, 3, 4], "id > 2 AND id <> 4", [3]),
        (mw.identity("id"), [1, 2, 3, 4], "NOT (id > 1 AND id < 4)", [1, 4]),
        (mw.identity("id"), [1, 2, 3], "CAST(id AS BIGINT) = 3", [3]),
        (mw.identity("id"), [1, 2, 3], "CAST(id AS DOUBLE) = 3.0", [3]),
        (mw.identity("id"), [1, 2, 3], "CAST(id AS DOUBLE) = 2.5", []),
        (mw.identity("bo"), [True, False, None], "NOT bo", [False]),
        (mw.identity("dec"), ["1.50", "2.00"], '"dec" < 1.6', ["1.50"]),
        (mw.identity("d"), [0, 1, None], "d = CAST('1970-01-02' AS DATE)", [1]),
        (mw.year("ts"), [1969, 1970, 2024], "ts < CAST('1970-01-01' AS TIMESTAMP)", [1969]),
        (mw.year("d"), [2023, 2024], "d BETWEEN '2024-02-01' AND '2024-03-01'", [2024]),
        (
            mw.year("d"), [2023, 2024, 2025],
            "d >= CAST('2024-02-01' AS DATE) AND d <= CAST('2024-03-01' AS DATE)", [2024],
        ),
        (
            mw.month("ts"), [1, 2, 3, 12],
            "ts >= CAST('2023-12-31' AS TIMESTAMP) AND ts < CAST('2024-02-01' AS TIMESTAMP)",
            [1, 12],
        ),
        (mw.hour("ts"), [0, 22, 23], "ts = CAST('2024-01-31 22:30:00' AS TIMESTAMP)", [22]),
        (mw.day("ts"), [30, 31, 1], "CAST(ts AS DATE) = CAST('2024-01-31' AS DATE)", [31]),
        (mw.hour("rome"), [21, 22], "rome = '2024-01-31T22:30:00+01:00'", [21]),
        (mw.truncate("id", 10), [-10, 0, 10, 20], "id = -5", [0]),
        (mw.truncate("id", 10), [-10, 0, 10, 20], "id <= -10", [-10]),
        (mw.truncate("id", 10), [-10, 0, 10, 20], "id BETWEEN 12 AND 20", [10, 20]),
        (mw.truncate("dec", 2), ["0.00", "2.00", "4.00"], '"dec" = 3.50', ["2.00"]),
        (mw.truncate("s", 2), ["a", "ab", "ac"], "s = 'abc'", ["ab"]),
        (mw.truncate("s", 2), ["a", "ab", "ac"], "s > 'ab'", ["ab", "ac"]),
        (mw.expression("col0 % 3", "id"), [0, 1, 2, None], "id IN (3, 4)", [0, 1]),
        (mw.expression("upper(col0)", "s"), ["A", "B"], "s = 'b'", ["B"]),
    ])  # fmt: skip
def test_obvious_regions_are_pruned(
    field: RegionField, values: list[object], sql: str, expected: list[object]
) -> None:
    assert _kept(field, values, sql) == expected


@each(
    "field, column, sql",
    [
        (mw.bucket("id", 16), "id", "id = 7"),
        (mw.bucket("s", 16), "s", "s = 'a'"),
        (mw.bucket("dec", 16), "dec", '"dec" = 1.50'),
        (mw.bucket("ts", 16), "ts", "ts = CAST('2024-01-31 22:30:00' AS TIMESTAMP)"),
        (mw.multi_bucket(["id", "s"], 16), "id", "id = 7 AND s = 'a'"),
    ],
)
def test_a_key_leaves_one_bucket(field: RegionField, column: str, sql: str) -> None:
    row = {"id": 7, "s": "a", "dec": Decimal("1.5"), "ts": _utc(MOMENTS[2]).replace(tzinfo=None)}
    table = pa.Table.from_pylist([row], SCHEMA)
    spec = validate(spec_of(field, 1), SCHEMA, SCHEMA.names)
    own = spec.evaluate(table).column(0)[0].as_py()
    assert _kept(field, [*range(16), None], sql) == [own]


def test_a_bucket_of_null_holds_nulls_only() -> None:
    """Protocol rule 12: NULL gives NULL, its own region."""
    assert _kept(mw.bucket("id", 4), [0, 1, 2, 3, None], "id IS NULL") == [None]
    assert _kept(mw.bucket("id", 4), [0, 1, 2, 3, None], "id > 5") == [0, 1, 2, 3]


def test_a_native_bucket_is_pruned_by_native_rule() -> None:
    """Protocol rule 12: NULL is in bucket 0 there, and strings hash otherwise."""
    field = RegionField(
        "n", ("s",), transform="bucket", parameters={"num_buckets": "8"}, native=True
    )
    assert _kept(field, list(range(8)), "s = 'a'") == [1]
    assert _kept(field, list(range(8)), "s IS NULL") == [0]


def test_two_fields_prune_together() -> None:
    spec = validate(spec_of([mw.identity("s"), mw.bucket("id", 4)], 1), SCHEMA, SCHEMA.names)
    regions = [
        RegionSources(UUID(int=4 * at + b), f"{s}{b}", 1, {"s": s, "id_bucket": b}, ())
        for at, s in enumerate("xyz")
        for b in range(4)
    ]
    kept = prune(SAID("(s = 'x' OR s = 'y') AND id = 3"), regions, [spec], SCHEMA)
    assert len(kept) == 2 and {region.name[0] for region in kept} == {"x", "y"}


@each(
    "sql", ["random() < 0.5", "s ~ 'a'", "id * 2 = big", "CAST(s AS INTEGER) = 1", "lower(s) = 'a'"]
)
def test_an_unknown_condition_keeps_every_region(sql: str) -> None:
    assert _kept(mw.bucket("id", 4), [0, 1, 2, 3, None], sql) == [0, 1, 2, 3, None]


def test_regions_without_values_or_of_an_unknown_spec_stay() -> None:
    """Protocol rule 1: a region made by native code may lack its values."""
    spec = validate(spec_of(mw.bucket("id", 4), 1), SCHEMA, SCHEMA.names)
    stay = [
        RegionSources(UUID(int=0), "unknown", 1, None, ()),
        RegionSources(UUID(int=1), "other", 7, {"id_bucket": 0}, ()),
        RegionSources(UUID(int=2), "manual", 0, None, ()),
        RegionSources(UUID(int=3), "lacking", 1, {}, ()),
    ]
    never = SAID("id = 7") + SAID("id = 8")
    assert prune(never, stay[:3], [spec], SCHEMA) == tuple(stay[:3])
    assert prune(SAID("id = 7"), stay, [spec], SCHEMA) == tuple(stay)


def test_one_of_a_thousand_regions_is_left() -> None:
    spec = validate(spec_of(mw.bucket("id", 1000), 1), SCHEMA, SCHEMA.names)
    regions = [RegionSources(UUID(int=b), str(b), 1, {"id_bucket": b}, ()) for b in range(1000)]
    assert len(prune(SAID("id = 1"), regions, [spec], SCHEMA)) == 1
    assert len(prune(SAID("id = 2"), regions, [spec], SCHEMA)) == 1
