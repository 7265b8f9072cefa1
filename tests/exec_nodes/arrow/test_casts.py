"""A value is cast only where it stays equal, whatever form it comes in."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from exec_nodes.arrow.casts import exact_cast
from exec_nodes.arrow.python_values import exact_values
from exec_nodes.base.errors import InvalidCallError
from tests.each import each

UTC = datetime.UTC
DAY = datetime.date(2020, 1, 1)
NOON = datetime.datetime(2020, 1, 1, 12)
ODD = NOON.replace(microsecond=5)
NANO = pd.Timestamp("2020-01-01T00:00:00.000000001")
SECONDS, ZONED = pa.timestamp("s"), pa.timestamp("us", "UTC")
ITEM = pa.struct([pa.field("n", pa.int8())])


@each(
    "values, kind, said",
    [
        ([1, 1.2], pa.int64(), "1.2"),
        ([Decimal("5.5")], pa.int64(), "5.5"),
        ([np.float64(1.5)], pa.int8(), "1.5"),
        (np.array([1.0, 1.5]), pa.int64(), "1.5"),
        (pd.Series([1.5]), pa.int64(), "1.5"),
        (np.array([1.5], object), pa.int64(), "1.5"),
        (iter([1.5]), pa.int64(), "1.5"),
        (pa.array([1.5]), pa.int64(), "1.5"),
        ([2**53 + 1], pa.float64(), str(2**53 + 1)),
        ([0.5, 1e300], pa.float32(), "1e.300"),
        ([1e6], pa.float16(), "1000000"),
        (np.array([1e300]), pa.float32(), "1e.300"),
        (pa.array([0.1]), pa.float32(), "0.1 in row 0"),
        (pa.array([0.5, 1e6]), pa.float16(), "1000000"),
        (np.array([3, 10**8]), pa.decimal128(9, 2), "precision 9"),
        (np.array([3]), pa.decimal128(9, -2), "would cause data loss"),
        ([True], pa.int64(), "True"),
        ([np.True_], pa.int64(), "True"),
        ([True], pa.float64(), "True"),
        (pa.array([True]), pa.int64(), "bool"),
        ([ODD], SECONDS, "whole s"),
        ([None, NOON, ODD], SECONDS, "12, 0, 0, 5"),
        ([NANO], pa.timestamp("us"), "whole us"),
        ([NANO], SECONDS, "whole s"),
        ([1.5], SECONDS, "1.5"),
        ([1.5], pa.date32(), "1.5"),
        ([datetime.time(1, 2, 3, 5)], pa.time32("s"), "whole s"),
        ([datetime.timedelta(microseconds=5)], pa.duration("s"), "whole s"),
        ([NOON], ZONED, "give it a time zone"),
        ([NOON.replace(tzinfo=UTC), NOON], ZONED, "give it a time zone"),
        ([NOON.replace(tzinfo=UTC)], SECONDS, "drop its time zone"),
        ([datetime.time(1, tzinfo=UTC)], pa.time64("us"), "drop its time zone"),
        (pa.array([NOON]), ZONED, "give it a time zone"),
        (pa.array([NOON], ZONED), SECONDS, "drop its time zone"),
        (pa.array([[NOON]]), pa.list_(ZONED), "column"),
        ([NOON], pa.date32(), "time of day"),
        (np.array([NOON, NOON], "M8[s]"), pa.date32(), "2020-01-01 12:00:00 has a time of day"),
        (pd.Series([pd.NaT, ODD]), pa.date64(), "12:00:00.000005.* has a time of day"),
        (pa.array([{"d": ODD}]), pa.struct([("d", pa.date32())]), "has a time of day"),
        (pa.array([NOON], ZONED), pa.date32(), "needs date32"),
        ([NOON], pa.date64(), "time of day"),
        ([[1], None, [1.5]], pa.list_(pa.int64()), "1.5"),
        ([np.array([1.5])], pa.list_(pa.int64()), "1.5"),
        ([[True]], pa.list_(pa.float32(), 1), "True"),
        ([[1e300]], pa.list_(pa.float32(), 1), "1e.300"),
        ([None, {"n": 1.5}], ITEM, "1.5"),
        ([[{"n": 1.5}]], pa.list_(ITEM), "1.5"),
        ([None, [("a", 1.5)]], pa.map_(pa.string(), pa.int8()), "1.5"),
        ([{"a": 1.5}], pa.map_(pa.string(), pa.int8()), "1.5"),
        ([1.5], pa.dictionary(pa.int8(), pa.int8()), "1.5"),
        (["x"], pa.int64(), "'x'"),
        (1, pa.int64(), "put it into a list"),
        ("abc", pa.string(), "put it into a list"),
        ({"a": 1}, pa.string(), "put it into a list"),
        (np.zeros((2, 2)), pa.int64(), "column 'c'"),
    ],
)
def test_a_value_that_would_change_is_named(values: Any, kind: pa.DataType, said: str) -> None:
    with pytest.raises(InvalidCallError, match=said) as caught:
        exact_values(values, pa.field("c", kind))
    assert "'c'" in str(caught.value)


@each(
    "values, kind, expected",
    [
        ([1, 2.0, None, Decimal(3)], pa.int64(), [1, 2, None, 3]),
        (np.array([1.0, 2.0]), pa.int8(), [1, 2]),
        (np.array([1, -9999999]), pa.decimal128(9, 2), [Decimal(1), Decimal(-9999999)]),
        (np.array([2**64 - 1], np.uint64), pa.decimal128(22, 2), [Decimal(2**64 - 1)]),
        (pa.array([[3, None], None]), pa.list_(pa.decimal128(9, 2)), [[Decimal(3), None], None]),
        (
            pa.array([[("a", None)], None], pa.map_(pa.string(), pa.null())),
            pa.map_(pa.string(), pa.int64()),
            [[("a", None)], None],
        ),
        (pd.Series([1.0, None]), pa.int8(), [1, None]),
        (pd.Series(["a", None], dtype=object), pa.string(), ["a", None]),
        (range(2), pa.int32(), [0, 1]),
        ([0.1], pa.float32(), [float(np.float32(0.1))]),
        (np.array([0.1, np.inf]), pa.float32(), [float(np.float32(0.1)), float("inf")]),
        ([0.5, float("inf"), None], pa.float16(), [0.5, float("inf"), None]),
        ([[0.1, None], None], pa.list_(pa.float32()), [[float(np.float32(0.1)), None], None]),
        ([np.array([0.5])], pa.list_(pa.float32(), 1), [[0.5]]),
        ([NOON, None], SECONDS, [NOON, None]),
        ([NOON.replace(tzinfo=UTC)], ZONED, [NOON.replace(tzinfo=UTC)]),
        (pd.Series([pd.NaT, pd.Timestamp(NOON)], dtype=object), pa.timestamp("ms"), [None, NOON]),
        ([DAY], pa.date32(), [DAY]),
        *(
            (np.array([DAY, None], f"M8[{unit}]"), kind, [DAY, None])
            for unit in ("s", "ms", "us", "ns")
            for kind in (pa.date32(), pa.date64())
        ),
        (pd.Series([pd.Timestamp(DAY), pd.NaT]), pa.date32(), [DAY, None]),
        (pa.array([[datetime.datetime(2020, 1, 1)]]), pa.list_(pa.date32()), [[DAY]]),
        (pa.array([], pa.timestamp("us")), pa.date32(), []),
        ([datetime.time(1)], pa.time32("s"), [datetime.time(1)]),
        ([True, None], pa.bool_(), [True, None]),
        ([None, {"n": 1}, {"n": None}], ITEM, [None, {"n": 1}, {"n": None}]),
        (["a", "b", "a"], pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a"]),
        (pa.array(["a"]), pa.dictionary(pa.int8(), pa.string()), ["a"]),
        (pa.array([[float("nan"), 0.5]]), pa.list_(pa.float32()), None),
        (pa.array([{"n": None}], pa.struct([("n", pa.null())])), ITEM, [{"n": None}]),
        (pa.array([[None], None, []]), pa.list_(ITEM), [[None], None, []]),
        ([None], pa.int64(), [None]),
        ([], pa.int64(), []),
    ],
)
def test_a_value_that_stays_equal_is_taken(
    values: Any, kind: pa.DataType, expected: list[Any] | None
) -> None:
    column = exact_values(values, pa.field("c", kind))
    assert column.type == kind
    assert expected is None or column.to_pylist() == expected


@each("digits", range(5))
@each("kind", [np.float64, np.float32])
def test_floats_written_with_a_decimals_digits_are_taken(kind: type, digits: int) -> None:
    largest = 10**6 if kind is np.float32 else 10**12  # what the float can tell apart
    unscaled = np.random.default_rng(digits).integers(-largest, largest, 2000)
    texts = [str(Decimal(int(one)).scaleb(-digits)) for one in unscaled]
    field = pa.field("x", pa.decimal128(18, digits))
    floats = pa.array(np.array(texts, kind))
    assert exact_cast(floats, field).equals(pa.array(map(Decimal, texts), field.type))
    with pytest.raises(InvalidCallError, match="would change"):
        exact_cast(pa.array([1.5 / 10**digits]), field)


@each("kind", [pa.float32(), pa.float64()])
@each("digits", [0, 1, 5, 9])
def test_decimals_are_the_floats_that_are_written_so_whatever_zeros_they_end_with(
    kind: pa.DataType, digits: int
) -> None:
    unscaled = np.random.default_rng(digits).integers(-(10**6), 10**6, 2000)
    texts = [str(Decimal(int(one)).scaleb(-digits)) for one in unscaled]
    for scale in (digits, digits + 3, digits + 18):
        decimals = pa.array(map(Decimal, texts), pa.decimal128(38, scale))
        assert exact_cast(decimals, pa.field("x", kind)).equals(pa.array(map(float, texts), kind))
    with pytest.raises(InvalidCallError, match="would change"):
        exact_cast(pa.array([Decimal("1.000000000000000001")]), pa.field("x", kind))


def test_a_column_of_the_type_is_returned_as_it_is() -> None:
    column = pa.chunked_array([[1, 2], [3]])
    assert exact_cast(column, pa.field("c", pa.int64())) is column


LONG = "x" * 10**6


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(LONG, id="text"),
        pytest.param([LONG], id="texts"),
        pytest.param([["x"] * 10**5], id="list"),
        pytest.param([{"n": LONG}], id="struct"),
    ],
)
def test_long_values_are_cut_in_messages(values: Any) -> None:
    for kind in (pa.int64(), ITEM):
        with pytest.raises(InvalidCallError, match=r"column 'c': .* is not an? ") as caught:
            exact_values(values, pa.field("c", kind))
        assert len(str(caught.value)) < 1000


def test_numbers_are_no_times_in_whatever_form_they_come() -> None:
    """A number has no unit: milliseconds of Kafka became days in January 1970."""
    kinds = [
        *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.duration("ms")),
    ]
    kinds += [pa.list_(kinds[0]), pa.struct([("at", kinds[1])]), pa.map_(pa.string(), kinds[2])]
    numbers: list[Any] = [0, 1_764_000_000_000, 2.0, np.int64(3), Decimal(4), True, np.bool_(True)]

    def inside(kind: pa.DataType, value: Any) -> Any:
        if pa.types.is_list(kind):
            return [value]
        if pa.types.is_struct(kind):
            return {"at": value}
        return {"at": value} if pa.types.is_map(kind) else value

    for kind in kinds:
        field = pa.field("at", kind)
        for number in numbers:
            value = inside(kind, number)
            forms: list[Any] = [[value, None], [None, value], np.array([value], object)]
            if kind == pa.timestamp("us"):
                forms += [pa.array([number]), pd.Series([number]), np.array([number])]
            for form in forms:
                with pytest.raises(InvalidCallError, match="at"):
                    exact_values(form, field)
    for name in ("datetime.date", "datetime.timedelta", "datetime.time"):
        kind = {"date": pa.date32(), "time": pa.time64("us")}.get(name[9:], pa.duration("s"))
        with pytest.raises(InvalidCallError, match=f"a number is not a time here: give a {name}$"):
            exact_values([1], pa.field("at", kind))


STRICT = pa.field("x", pa.int32(), nullable=False)


def nested_structs(field: pa.Field) -> dict[str, pa.Array]:
    """The structs {"x": 1} and NULL within other types. Below the NULL is one, as Spark has it."""
    numbers = pa.array([1, None], field.type)
    structs = pa.StructArray.from_arrays([numbers], fields=[field], mask=pa.array([False, True]))
    lists = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), structs)
    maps = pa.MapArray.from_arrays([0, 2], pa.array(["a", "b"]), structs)
    return {
        "list": lists,
        "large list": pa.LargeListArray.from_arrays(pa.array([0, 2], pa.int64()), structs),
        "list of one size": pa.FixedSizeListArray.from_arrays(structs, 2),
        "map": maps,
        "struct": pa.StructArray.from_arrays([structs], ["s"]),
        "list of lists": pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), lists),
        "map in a struct": pa.StructArray.from_arrays([maps], ["m"]),
    }


@each("nesting", nested_structs(STRICT))
def test_null_structs_stay_null_whose_fields_admit_no_nulls(nesting: str) -> None:
    """As those of Spark's `named_struct('x', 1)`."""
    column = nested_structs(STRICT)[nesting]
    for field in (
        STRICT.with_nullable(True),
        STRICT.with_type(pa.int64()),
        pa.field("x", pa.int64()),
    ):
        kind = nested_structs(field)[nesting].type
        for rows in (column, column.slice(1), pa.chunked_array([column, column])):
            cast = exact_cast(rows, pa.field(nesting, kind))
            assert cast.type == kind
            assert cast.to_pylist() == rows.to_pylist()
