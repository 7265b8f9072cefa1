"""Region fields evaluate as specified, over columns and over one key."""

from __future__ import annotations

import datetime
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exec_nodes.base.errors import InvalidCallError, UnsupportedError
from exec_nodes.keys.keys import key_values
from planner.regions import factories as mw
from planner.regions.check import validate
from planner.regions.field import RegionField
from planner.regions.hashing.murmur3 import murmur3
from planner.regions.spec import RegionSpec
from planner.regions.text import spec_of
from planner.regions.transform import evaluate_field
from planner.regions.values import arrow_values, region_values, type_name, type_of
from tests.each import each

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DAYS = st.dates(datetime.date(1700, 1, 1), datetime.date(2200, 1, 1))
MOMENT = st.builds(datetime.datetime.combine, DAYS, st.times())


def values(field: RegionField, column: pa.Array) -> list[object]:
    """What a field over one column `c` gives."""
    result: list[object] = evaluate_field(field, pa.table({"c": column})).to_pylist()
    return result


def test_fields_have_readable_names_of_their_own() -> None:
    fields = [
        mw.identity("id"),
        mw.year("id"),
        mw.month("id"),
        mw.day("id"),
        mw.hour("id"),
        mw.bucket("id", 16),
        mw.multi_bucket(["a", "b"], 16),
        mw.truncate("id", 4),
        mw.bucket("id", 4, name="mine"),
    ]
    assert [field.field_id for field in fields] == [
        "id", "id_year", "id_month", "id_day", "id_hour", "id_bucket", "a_b_bucket", "id_truncate",
        "mine",
    ]  # fmt: skip


def test_a_bucket_is_the_absolute_hash_modulo_n_and_null_for_null() -> None:
    """Protocol rule 12."""
    column = pa.array([1, 2, None, -3, 2**40])
    expected = [None if h is None else abs(h) % 7 for h in murmur3(column).to_pylist()]
    assert values(mw.bucket("c", 7), column) == expected
    assert values(mw.multi_bucket(["c"], 7), column) == expected


def test_equal_numbers_of_any_integer_type_are_in_the_same_bucket() -> None:
    """Protocol rule 12: type promotion does not move a key."""
    numbers = [1, 2, 100, None, 0]
    types = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()]
    assert len({str(values(mw.bucket("c", 97), pa.array(numbers, t))) for t in types}) == 1


@given(moments=st.lists(st.none() | MOMENT), zone=st.sampled_from([None, "UTC", "Asia/Tokyo"]))
@settings(max_examples=60, deadline=None)
def test_date_parts_are_calendar_parts_in_utc(
    moments: list[datetime.datetime | None], zone: str | None
) -> None:
    """Protocol rule 12; before 1970 too, in every unit and zone."""
    whole = [None if m is None else m.replace(microsecond=0) for m in moments]
    for unit in UNITS:
        column = pa.array(whole, pa.timestamp(unit)).cast(pa.int64()).cast(pa.timestamp(unit, zone))
        for part in ("year", "month", "day", "hour"):
            expected = [None if m is None else getattr(m, part) for m in whole]
            assert values(getattr(mw, part)("c"), column) == expected


@given(days=st.lists(st.none() | st.dates(datetime.date(1, 1, 2), datetime.date(9999, 1, 1))))
@settings(max_examples=60, deadline=None)
def test_date_parts_of_dates(days: list[datetime.date | None]) -> None:
    for kind in (pa.date32(), pa.date64()):
        for part in ("year", "month", "day"):
            expected = [None if d is None else getattr(d, part) for d in days]
            assert values(getattr(mw, part)("c"), pa.array(days, kind)) == expected


def test_numbers_are_truncated_toward_zero() -> None:
    """Protocol rule 12: `col0 - (col0 % W)`."""
    column = pa.array([25, -25, 9, -9, 0, None, -(2**63), 2**63 - 1])
    expected = [20, -20, 0, 0, 0, None, -(2**63) + 8, 2**63 - 8]
    assert values(mw.truncate("c", 10), column) == expected
    assert values(mw.truncate("c", 1000), pa.array([-128, 127], pa.int8())) == [0, 0]
    assert values(mw.truncate("c", 10), pa.array([2**64 - 1], pa.uint64())) == [2**64 - 6]


def test_decimals_of_every_width_are_truncated_toward_zero() -> None:
    kinds = [pa.decimal32(9, 2), pa.decimal64(18, 4), pa.decimal128(38, 38), pa.decimal128(38, 9)]
    kinds += [
        pa.decimal128(5, -2),
        pa.decimal256(76, 76),
        pa.decimal256(76, 5),
        pa.decimal256(70, -3),
    ]
    for kind in kinds:
        most = 10**kind.precision - 1
        numbers = [most, -most, most // 3, -most // 7, 1000, 0]
        column = pa.array(
            [Decimal((n < 0, tuple(map(int, str(abs(n)))), -kind.scale)) for n in numbers], kind
        )
        for width in (1, 7, 1000, 2**31 - 1):
            step = width * 10 ** max(kind.scale, 0)
            expected = [int(Fraction(n) / step) * step for n in numbers]
            found = values(mw.truncate("c", width), pa.concat_arrays([column, pa.nulls(1, kind)]))
            shown = [
                None if v is None else int(Fraction(v) * Fraction(10) ** kind.scale) for v in found
            ]
            assert shown == [*expected, None], (kind, width)


def test_texts_are_truncated_by_characters() -> None:
    column = pa.array(["é😀x", "a", "", None])
    assert values(mw.truncate("c", 2), column) == ["é😀", "a", "", None]
    assert values(mw.truncate("c", 2), column.cast(pa.large_string())) == ["é😀", "a", "", None]


@each(
    "field",
    [
        mw.identity("c"),
        mw.year("c"),
        mw.bucket("c", 4),
        mw.multi_bucket(["c", "d"], 4),
        mw.truncate("c", 4),
    ],
)
def test_a_removed_column_reads_as_null(field: RegionField) -> None:
    """Protocol rule 12 and specification 1, "Column removal resistant"."""
    assert evaluate_field(field, pa.table({"x": [1, 2]})).to_pylist() == [None, None]


def test_native_fields_follow_native_rules() -> None:
    """Protocol rule 12: NULL is in bucket 0 there."""
    assert values(mw.lance_bucket("c", 8), pa.array(["a", "b", None])) == [1, 5, 0]
    one = RegionField("n", (), transform="unsharded", native=True)
    assert values(one, pa.array([1, None])) == [0, 0]


def test_an_unknown_transform_is_refused_by_name() -> None:
    field = RegionField("f", ("c",), transform="zorder")
    with pytest.raises(UnsupportedError, match="zorder"):
        values(field, pa.array([1]))


FIELDS = [
    mw.bucket("id", 5),
    mw.identity("s"),
    mw.bucket("s", 3),
    mw.truncate("id", 100),
    mw.year("ts"),
]


@given(
    rows=st.lists(
        st.tuples(
            st.none() | st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=2), MOMENT
        )
    ),
    chosen=st.lists(st.sampled_from(FIELDS), min_size=1, unique_by=lambda f: f.field_id),
)
@settings(max_examples=100, deadline=None)
def test_every_row_is_assigned_to_the_combination_of_its_values(
    rows: list[tuple[int | None, str | None, datetime.datetime]], chosen: list[RegionField]
) -> None:
    table = pa.table(
        {
            "id": pa.array([r[0] for r in rows], pa.int32()),
            "s": pa.array([r[1] for r in rows], pa.string()),
            "ts": pa.array([r[2] for r in rows], pa.timestamp("us")),
        }
    )
    spec = RegionSpec(1, tuple(chosen))
    distinct, index = spec.assign(table)
    evaluated = spec.evaluate(table)
    assert distinct.take(pa.array(index)).equals(evaluated)
    combinations = [tuple(row.values()) for row in spec.values_of(distinct)]
    assert len(set(combinations)) == len(combinations)


def test_rows_in_many_chunks_are_assigned_alike() -> None:
    table = pa.concat_tables([pa.table({"id": [1, 2]}), pa.table({"id": [2, 3]})])
    spec = spec_of(mw.identity("id"), 1)
    distinct, index = spec.assign(table)
    assert distinct.column(0).take(pa.array(index)).to_pylist() == [1, 2, 2, 3]
    assert spec.assign(table.slice(0, 0))[0].num_rows == 0


KEYS = pa.table(
    {
        "id": pa.array([7, -1, 2**31 - 1], pa.int32()),
        "u": pa.array([2**64 - 1, 0, 5], pa.uint64()),
        "s": ["é", "", "abc"],
        "b": pa.array([b"", b"\0", b"xyz"]),
        "bo": [True, False, True],
        "d": pa.array([-1, 0, 19_000], pa.date32()),
        "ts": pa.array([-1, 0, 1_700_000_000_123], pa.timestamp("ms", "Asia/Tokyo")),
        "dec": pa.array([Decimal("1.50"), Decimal("-7"), Decimal("0")], pa.decimal128(10, 2)),
    }
)


@each(
    "field",
    [
        *[mw.bucket(name, 13) for name in KEYS.column_names],
        *[mw.lance_bucket(name, 13) for name in ("id", "u", "s", "bo", "d", "ts")],
        *[mw.identity(name) for name in KEYS.column_names],
        mw.year("ts"),
        mw.truncate("dec", 2),
        mw.multi_bucket(["id", "s", "dec"], 13),
        mw.expression("abs(col0 % 10)", "id"),
        RegionField("n", (), transform="unsharded", native=True),
    ],
)
def test_one_key_gets_the_values_of_its_row(field: RegionField) -> None:
    spec = spec_of(field, 1)
    expected = [tuple(row.values()) for row in spec.values_of(spec.evaluate(KEYS))]
    of_key = spec.key_function(KEYS.schema, KEYS.column_names)
    assert [of_key(key) for key in key_values(KEYS.columns)] == expected
    if len(field.source_columns) == 1 and (name := field.source_columns[0]):
        of_single = spec.key_function(KEYS.schema, [name])
        assert [of_single(key) for key in key_values([KEYS.column(name)])] == expected


def test_region_values_are_plain_and_come_back() -> None:
    for name in KEYS.column_names:
        column = pc.if_else(pa.array([True, True, False]), KEYS.column(name), None)
        plain = region_values(column)
        assert all(v is None or isinstance(v, bool | int | str | bytes) for v in plain)
        assert arrow_values(list(plain), column.type).to_pylist() == column.to_pylist()
        assert type_of(type_name(column.type)) == column.type


def test_specs_are_made_from_what_create_table_takes() -> None:
    field = mw.bucket("id", 4)
    assert spec_of(field, 3) == spec_of([field], 3) == RegionSpec(3, (field,))
    assert spec_of(mw.manual(), 3).is_manual
    for wrong in ([], ["id"], None):
        with pytest.raises((InvalidCallError, TypeError)):
            spec_of(wrong, 1)  # type: ignore[arg-type]


def test_manual_regions_have_no_values() -> None:
    with pytest.raises(InvalidCallError, match="manual"):
        mw.manual().evaluate(pa.table({"id": [1]}))


@each("count", [0, -1, 2**31, True, 1.5, "4"])
def test_a_number_of_buckets_must_be_positive(count: object) -> None:
    with pytest.raises(InvalidCallError, match="num_buckets"):
        mw.bucket("id", count)  # type: ignore[arg-type]


SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("v", pa.int64()),
        ("b", pa.binary()),
        ("d", pa.date64()),
    ]
)


@each(
    "field, message",
    [
        (mw.bucket("v", 4), "not part of the primary key"),
        (mw.multi_bucket(["id", "v"], 4), "not part of the primary key"),
        (mw.identity("nothing"), "no column 'nothing'"),
        (mw.identity("f"), "double"),
        (mw.year("id"), "year needs a date"),
        (mw.hour("s"), "hour needs a date"),
        (RegionField("x", ("id", "s"), transform="identity"), "takes one column"),
        (RegionField("x", ("id",), transform="bucket", parameters={}), "num_buckets"),
        (mw.lance_bucket("v", 4), "not part of the primary key"),
        (mw.lance_bucket("id", 1025), "at most 1024 buckets"),
        (mw.lance_bucket("b", 4), "no bucket for a column of type binary"),
        (mw.lance_bucket("d", 4), "no bucket for a column of type date64"),
        (RegionField("x", ("id",), transform="identity", result_type="utf8"), "declares utf8"),
        (RegionField("x", ("id",), transform="zorder"), "zorder"),
    ],
)
def test_a_field_that_does_not_fit_the_table_is_refused(field: RegionField, message: str) -> None:
    """Protocol rule 10: a region column outside the key would bring old rows back."""
    with pytest.raises(InvalidCallError, match=message):
        validate(spec_of(field, 1), SCHEMA, ["id", "s", "f", "b", "d"])


def test_two_fields_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidCallError, match="twice"):
        spec_of([mw.bucket("id", 4), mw.bucket("id", 8)], 1)


def test_result_types_follow_from_the_schema() -> None:
    spec = validate(spec_of([mw.identity("s"), mw.truncate("id", 5)], 1), SCHEMA, ["id", "s"])
    assert [f.result_type for f in spec.fields] == ["utf8", "int64"]
