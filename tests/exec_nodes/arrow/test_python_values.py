"""A Python value is taken by a column of its own kind, and by few others: all kinds of values of
Python, numpy and pandas against all types of columns, nested too."""

from __future__ import annotations

import array
import collections
import enum
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from exec_nodes.arrow.python_values import exact_values
from exec_nodes.base.errors import InvalidCallError
from tests.each import each


class Colour(enum.IntEnum):
    RED = 5


class Word(enum.StrEnum):
    FIVE = "5"


NOON = datetime(2020, 1, 1, 12, microsecond=7)
DAY = NOON.date()
NAMED = collections.namedtuple("NAMED", "n")(5)

# Values that are not lists, structs or maps, by name.
PLAIN: dict[str, Any] = {
    "none": None,
    "NA": pd.NA,
    "bool": True,
    "np bool": np.True_,
    "int": 5,
    "enum": Colour.RED,
    "np int": np.int16(5),
    "np uint": np.uint64(5),
    "float": 5.0,
    "half": 5.5,
    "np float": np.float32(5),
    "nan": float("nan"),
    "decimal": Decimal("5.00"),
    "large decimal": Decimal("1e1000000"),
    "decimal nan": Decimal("NaN"),
    "fraction": Fraction(5),
    "complex": 5 + 0j,
    "np complex": np.complex128(5),
    "str": "5",
    "word": Word.FIVE,
    "np str": np.str_("5"),
    "bytes": b"5",
    "np bytes": np.bytes_(b"5"),
    "bytearray": bytearray(b"5"),
    "memoryview": memoryview(b"5"),
    "void": np.void(b"5"),
    "16 bytes": bytes(16),
    "uuid": UUID(int=0),
    "date": DAY,
    "datetime": NOON,
    "zoned datetime": NOON.replace(tzinfo=UTC),
    "time": NOON.time(),
    "zoned time": time(12, tzinfo=UTC),
    "timedelta": timedelta(microseconds=7),
    "Timestamp": pd.Timestamp(NOON),
    "zoned Timestamp": pd.Timestamp(NOON, tz="UTC"),
    "Timedelta": pd.Timedelta(7, "us"),
    "NaT": pd.NaT,
    "np datetime": np.datetime64(NOON, "us"),
    "np date": np.datetime64(DAY, "D"),
    "np month": np.datetime64("2020-01", "M"),
    "np NaT": np.datetime64("NaT"),
    "np timedelta": np.timedelta64(7, "us"),
    "np timedelta NaT": np.timedelta64("NaT", "us"),
    "period": pd.Period("2020-01"),
    "date text": "2020-01-01",
    "moment text": "2020-01-01T12:00:00.000007",
    "zoned text": "2020-01-01T13:00:00.000007+01:00",
    "time text": "12:00:00.000007",
    "no time": "noon",
    "0 dimensions": np.array(5),
    "0 dimensions, time": np.array(NOON, "M8[us]"),
    "object": object(),
    "type": int,
    "ellipsis": ...,
    "scalar": pa.scalar(5),
    "text scalar": pa.scalar("5"),
    "time scalar": pa.scalar(NOON, pa.timestamp("us")),
}
LISTS: dict[str, Any] = {
    "list": [5],
    "tuple": (5,),
    "set": {5},
    "frozenset": frozenset({5}),
    "range": range(5, 6),
    "deque": collections.deque([5]),
    "namedtuple": NAMED,
    "array": array.array("i", [5]),
    "1 dimension": np.array([5]),
    "objects": np.array([5], object),
    "series": pd.Series([5]),
    "index": pd.Index([5]),
    "arrow array": pa.array([5]),
    "list scalar": pa.scalar([5]),
}
OTHERS: dict[str, Any] = {
    "2 dimensions": np.array([[5]]),
    "dict": {"n": 5},
    "ordered dict": collections.OrderedDict(n=5),
    "pairs": [("n", 5)],
    "record": np.array([(5,)], [("n", "i4")])[0],
    "generator": (n for n in [5]),
}
VALUES = PLAIN | LISTS | OTHERS

_NULLS = dict.fromkeys(["none", "NA"])
_NATS = dict.fromkeys(["NaT", "np NaT", "np timedelta NaT"]) | _NULLS
_WHOLE = dict.fromkeys(["int", "enum", "np int", "np uint", "scalar"], 5)
_TEXTS = dict.fromkeys(["str", "word", "np str", "text scalar"], "5") | {
    name: text for name, text in PLAIN.items() if name.endswith(" text") or name == "no time"
}
_BYTES = dict.fromkeys(["bytes", "np bytes", "bytearray", "memoryview"], b"5")
_MOMENTS = dict.fromkeys(
    ["datetime", "Timestamp", "np datetime", "moment text", "time scalar"], NOON
)
_ZONED = dict.fromkeys(
    ["zoned datetime", "zoned Timestamp", "zoned text"], NOON.replace(tzinfo=UTC)
)
_SPANS = dict.fromkeys(["timedelta", "Timedelta", "np timedelta"], timedelta(microseconds=7))
_LISTS = {name: [5] for name in LISTS}
_STRUCTS = {name: {"n": 5} for name in ("dict", "ordered dict", "pairs")}
_FLOATS = _WHOLE | {"float": 5, "half": 5.5, "np float": 5, "nan": None}

# Types, and what they take: the value's name -> the value that is read back. All else is refused.
TAKEN: list[tuple[list[pa.DataType], dict[str, Any]]] = [
    ([pa.null()], _NULLS),
    ([pa.bool_(), pa.bool8()], _NULLS | {"bool": True, "np bool": True}),
    (
        [pa.int8(), pa.int64(), pa.uint8(), pa.uint64(), pa.dictionary(pa.int8(), pa.int64())],
        _NULLS | _WHOLE | {"float": 5, "np float": 5, "decimal": 5},
    ),
    ([pa.float16(), pa.float32(), pa.float64()], _NULLS | _FLOATS),
    (
        [pa.decimal128(9, 2), pa.decimal256(40, 2), pa.decimal128(38, 37)],
        _NULLS
        | _WHOLE
        | {"decimal": 5}
        | dict.fromkeys(["str", "word", "np str", "text scalar"], 5),
    ),
    (
        [
            *(pa.string(), pa.large_string(), pa.string_view()),
            pa.dictionary(pa.int32(), pa.string()),
        ],
        _NULLS | _TEXTS,
    ),
    (
        [pa.binary(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int8(), pa.binary())],
        _NULLS | _BYTES | {"16 bytes": bytes(16)},
    ),
    ([pa.binary(16)], _NULLS | {"16 bytes": bytes(16), "uuid": bytes(16)}),
    ([pa.uuid()], _NULLS | {"16 bytes": UUID(int=0), "uuid": UUID(int=0)}),
    ([pa.date32(), pa.date64()], _NATS | {"date": DAY, "np date": DAY, "date text": DAY}),
    (
        [pa.timestamp("us"), pa.timestamp("ns")],
        _NATS | _MOMENTS | {"date text": datetime(2020, 1, 1)},
    ),
    ([pa.timestamp("us", "UTC")], _NATS | _ZONED),
    ([pa.time64("us"), pa.time64("ns")], _NATS | dict.fromkeys(["time", "time text"], NOON.time())),
    ([pa.duration("us")], _NATS | _SPANS),
    (
        [pa.list_(pa.int64()), pa.large_list(pa.int8()), pa.list_(pa.float32(), 1)],
        _NULLS | _LISTS,
    ),
    ([pa.struct([("n", pa.int64())])], _NULLS | _STRUCTS),
    (
        [pa.map_(pa.string(), pa.int64())],
        _NULLS | {name: [("n", 5)] for name in ("dict", "ordered dict", "pairs")},
    ),
]
# Lists of numpy's arrays: those of one dimension are no lists of lists.
_REFUSED = object()


def _forms(kind: pa.DataType, value: Any) -> Iterator[tuple[pa.DataType, Any, Any]]:
    """The value in a column, and in nested columns: the type, the values, and the function that
    gives the value back."""
    yield kind, [value], lambda column: column[0]
    yield kind, [None, value, None], lambda column: column[1]
    yield kind, (value,), lambda column: column[0]
    if isinstance(kind, pa.BaseExtensionType):
        return
    yield pa.list_(kind), [None, [], [value]], lambda column: column[2][0]
    yield pa.struct([("n", kind)]), [{"n": value}, None], lambda column: column[0]["n"]
    yield pa.map_(pa.string(), kind), [{"k": value}], lambda column: column[0][0][1]
    yield pa.list_(pa.struct([("n", kind)])), [[{"n": value}]], lambda column: column[0][0]["n"]


@each("kinds, taken", TAKEN)
def test_a_column_takes_values_of_its_kind_and_those_that_are_listed(
    kinds: list[pa.DataType], taken: dict[str, Any]
) -> None:
    for kind in kinds:
        for name, value in VALUES.items():
            for form, values, first in _forms(kind, value):
                expected = taken.get(name, _REFUSED)
                try:
                    column = exact_values(values, pa.field("c", form))
                except InvalidCallError as error:
                    assert expected is _REFUSED, (kind, name, form, error)
                    assert "'c'" in str(error)
                    continue
                column.validate(full=True)
                assert column.type == form
                back = first(column.to_pylist())
                assert expected is not _REFUSED, (kind, name, form, back)
                if name == "nan" and back is not None:
                    assert back != back
                else:
                    assert back == expected, (kind, name, form, back)
                    assert isinstance(back, bool) == isinstance(expected, bool)


def test_missing_values_of_frames_are_null_in_rows() -> None:
    frame = pd.DataFrame({"at": pd.to_datetime(["2024-01-01", None]), "n": pd.array([1, None])})
    rows = frame.to_dict("records")
    for kind in (pa.timestamp("us"), pa.timestamp("ns")):
        column = exact_values([row["at"] for row in rows], pa.field("at", kind))
        assert column.to_pylist() == [datetime(2024, 1, 1), None]
    assert exact_values([row["n"] for row in rows], pa.field("n", pa.int8())).to_pylist() == [
        1,
        None,
    ]


@each(
    "value, kind, said",
    [
        ("8", pa.int64(), r"'8' is not an int64: a text is not a number here: give int\('8'\)"),
        ("8", pa.float64(), r"give float\('8'\)"),
        ("one", pa.int64(), "'one' is not an int64$"),
        (b"a", pa.string(), r"value.decode\(\)"),
        ("a", pa.binary(), r"value.encode\(\) or bytes.fromhex"),
        (
            NOON,
            pa.timestamp("us", "UTC"),
            r"give it a time zone, as value.replace\(tzinfo=datetime.UTC",
        ),
        (pd.Timestamp(NOON), pa.timestamp("us", "UTC"), "give it a time zone"),
        (
            NOON.isoformat(),
            pa.timestamp("us", "UTC"),
            "with its offset, such as '2026-01-31T12:30:00Z'",
        ),
        (
            NOON.isoformat() + "Z",
            pa.timestamp("us"),
            "without a zone, such as '2026-01-31T12:30:00', with up to 6",
        ),
        (NOON.isoformat(), pa.timestamp("s"), "in whole seconds"),
        ("red", pa.list_(pa.string()), "it is not a list"),
        (b"\1\2", pa.list_(pa.int32()), "it is not a list"),
        ([1, 2], pa.list_(pa.float32(), 3), "it has 2 values, and the column's have 3"),
        ({"k": 1}, pa.list_(pa.int32()), "it is not a list"),
        ([("n", 1), ("n", 2)], pa.struct([("n", pa.int8())]), "it has a field twice"),
        ([(None, 1)], pa.map_(pa.string(), pa.int8()), "a key of a map is not null"),
        ({None: 1}, pa.map_(pa.string(), pa.int8()), "a key of a map is not null"),
        (10**5000, pa.int64(), "int of very many digits is not an int64"),
        (10**5000, pa.decimal128(9, 2), "int of very many digits"),
    ],
)
def test_a_refusal_says_what_to_give(value: Any, kind: pa.DataType, said: str) -> None:
    with pytest.raises(InvalidCallError, match=said):
        exact_values([value], pa.field("c", kind))


def test_a_dictionary_column_holds_as_many_values_as_its_index() -> None:
    field = pa.field("c", pa.dictionary(pa.int8(), pa.int64()))
    assert exact_values(list(range(127)) * 2, field).to_pylist() == list(range(127)) * 2
    with pytest.raises(InvalidCallError, match="more different values"):
        exact_values(list(range(300)), field)


@each("form", ["arrow", "categories", "pandas", "polars", "view"])
def test_texts_of_times_and_decimals_are_read_in_frames_too(form: str) -> None:
    texts = {
        pa.timestamp("us", "UTC"): ["2020-01-01T13:00:00.000007+01:00", None],
        pa.timestamp("us"): ["2020-01-01 12:00:00.000007", None],
        pa.date32(): ["2020-01-01", None],
        pa.time64("us"): ["12:00:00.000007", None],
        pa.decimal128(9, 2): ["5.00", None],
    }
    for kind, values in texts.items():
        column = {
            "arrow": lambda v: pa.array(v),
            "categories": lambda v: pa.array(v).dictionary_encode(),
            "pandas": lambda v: pd.Series(v),
            "polars": lambda v: pl.Series(v).to_arrow(),
            "view": lambda v: pa.array(v, pa.string_view()),
        }[form](values)
        expected = exact_values(values, pa.field("c", kind)).to_pylist()
        assert expected[0] in (NOON, NOON.replace(tzinfo=UTC), DAY, NOON.time(), 5)
        assert exact_values(column, pa.field("c", kind)).to_pylist() == expected
        wrong = pa.array(["tomorrow"])
        with pytest.raises(InvalidCallError, match="'c': 'tomorrow' is not"):
            exact_values(wrong, pa.field("c", kind))
    nested = pa.array([[{"n": "2020-01-01"}], None, []])
    kind = pa.list_(pa.struct([("n", pa.date32())]))
    assert exact_values(nested, pa.field("c", kind)).to_pylist() == [[{"n": DAY}], None, []]
    assert exact_values(nested[1:], pa.field("c", kind)).to_pylist() == [None, []]
