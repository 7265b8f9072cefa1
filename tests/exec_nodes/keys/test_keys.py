from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.dataset import dataset

from exec_nodes.base.errors import InvalidCallError
from exec_nodes.keys.keys import KeyBatch, as_key_table, check_key_type, key_column, key_values
from exec_nodes.keys.scalar import one_key
from tests.each import each
from tests.exec_nodes.kinds import COLUMNS

SCHEMA = pa.schema(
    [pa.field("a", pa.int32()), pa.field("b", pa.string()), pa.field("x", pa.float64())]
)


@each("kind", COLUMNS)
def test_every_key_type_has_distinct_plain_values(kind: str) -> None:
    column = COLUMNS[kind]
    check_key_type(pa.field("k", column.type))
    values = key_values([column])
    assert len(set(values)) == len(column)
    assert {type(v) for v in values} <= {int, str, bytes, bool}
    assert key_values([pa.chunked_array([column.slice(1), column.slice(0, 1)])]) == [
        *values[1:],
        values[0],
    ]


@each("kind", [pa.float64(), pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.null()])
def test_types_without_sound_equality_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(InvalidCallError, match="'k'"):
        check_key_type(pa.field("k", kind))


def test_dates_and_timestamps_are_integers() -> None:
    day = pa.array([datetime.date(1970, 1, 3)])
    assert key_values([day]) == [2]
    assert key_values([day, pa.array(["x"])]) == [(2, "x")]


@given(
    st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3), st.integers(0, 3)), min_size=1)
)
def test_a_composite_key_column_is_equal_exactly_if_the_keys_are(
    rows: list[tuple[str, bytes, int]],
) -> None:
    columns = [pa.array(list(c)) for c in zip(*rows, strict=True)]
    encoded = key_column(columns).to_pylist()
    assert len(set(encoded)) == len(set(rows))
    assert [encoded.index(e) for e in encoded] == [rows.index(r) for r in rows]


@each(
    "keys",
    [
        [1, 2],
        (1, 2),
        iter([1, 2]),
        np.array([1, 2]),
        pa.array([1, 2]),
        pa.chunked_array([[1], [2]]),
        pa.table({"x": [0.5, 0.5], "a": [1, 2]}),
        pa.record_batch({"a": [1, 2]}),
        pa.table({"a": [1, 2]}).to_reader(),
        {"a": [1, 2]},
        pd.DataFrame({"a": [1, 2]}),
        pd.Series([1, 2]),
        [{"a": 1}, {"a": 2, "x": 0.5}],
        iter([{"a": 1}, {"a": 2}]),
        [pa.record_batch({"a": [1]}), pa.table({"a": [2]})],
        dataset(pa.table({"x": [0.5, 0.5], "a": [1, 2]})),
        pa.array([{"a": 1}, {"a": 2}]),
    ],
)
def test_keys_come_in_any_shape(keys: Any) -> None:
    found = as_key_table(keys, SCHEMA, ["a"])
    assert found.schema.field("a").type == pa.int32()
    assert found["a"].to_pylist() == [1, 2]


def test_one_key_needs_no_list() -> None:
    assert as_key_table(7, SCHEMA, ["a"])["a"].to_pylist() == [7]
    assert as_key_table("x", SCHEMA, ["b"])["b"].to_pylist() == ["x"]
    assert as_key_table((1, "x"), SCHEMA, ["a", "b"]).to_pylist() == [{"a": 1, "b": "x"}]
    assert as_key_table([], SCHEMA, ["a", "b"]).num_rows == 0


@each(
    "keys, named",
    [
        ([1, "x"], "'x'"),
        ([1, None], "nulls"),
        ([2**40], str(2**40)),
        ([1.5], "1.5"),
        (pa.array([1.5]), "double"),
        (pa.table({"b": ["x"]}), "lack"),
        ({"b": ["x"]}, "lack.*'b'"),
        ({"a": 1}, "'a'.*put it into a list"),
        ({"a": [1.5]}, "1.5"),
        (True, "True"),
        ([1, True], "True"),
        (pa.array([True]), "bool"),
        (pa.array(["1"]), "string"),
        (np.zeros((2, 2)), "can't be read as keys"),
        (np.array(5j), "can't be read as keys"),
        (pa.table([[1], [2]], names=["a", "a"]), "more than once"),
    ],
)
def test_a_key_that_is_none_is_named(keys: Any, named: str) -> None:
    with pytest.raises(InvalidCallError, match=named):
        as_key_table(keys, SCHEMA, ["a"])


@each("form", [list, pa.array, lambda keys: {"t": keys}])
def test_a_timestamp_key_is_never_cut_nor_moved_to_another_zone(form: Any) -> None:
    noon = datetime.datetime.fromisoformat("2020-01-01T12:00:00")
    seconds, zoned = (
        pa.schema([("t", kind)]) for kind in (pa.timestamp("s"), pa.timestamp("s", "UTC"))
    )
    assert as_key_table(form([noon]), seconds, ["t"])["t"].to_pylist() == [noon]
    for moment, schema in [
        (noon.replace(microsecond=5), seconds),
        (noon, zoned),
        (noon.astimezone(datetime.UTC), seconds),
    ]:
        with pytest.raises(InvalidCallError, match="'t'"):
            as_key_table(form([moment]), schema, ["t"])


@each("keys", [[1], [(1, "x", 2)], [(1,)], pa.array([1])])
def test_a_composite_key_needs_all_its_values(keys: Any) -> None:
    with pytest.raises(InvalidCallError):
        as_key_table(keys, SCHEMA, ["a", "b"])


def test_a_batch_knows_where_its_keys_are() -> None:
    batch = KeyBatch(pa.table({"a": [5, 6, 7]}))
    assert batch.positions == {5: 0, 6: 1, 7: 2}
    assert batch.filter(np.array([True, False, True])).values == [5, 7]
    assert batch.filter(np.ones(3, np.bool_)) is batch


# A key taken straight from its Python value is the key that Arrow would make of it.


_KINDS = [
    pa.int8(),
    pa.uint16(),
    pa.int64(),
    pa.uint64(),
    pa.string(),
    pa.large_string(),
    pa.bool_(),
    pa.binary(),
    pa.date32(),
]
_VALUES = st.one_of(
    st.integers(-(2**64), 2**65), st.integers(-130, 130), st.text(max_size=3), st.binary(max_size=2)
) | st.sampled_from([None, True, 1.0, datetime.date(2024, 1, 1), (1,), ()])
_LISTS = st.lists(_VALUES, max_size=2)


@given(value=_VALUES | _LISTS, kind=st.sampled_from(_KINDS))
def test_it_is_the_key_that_arrow_makes_of_the_value_or_left_to_arrow(
    value: Any, kind: pa.DataType
) -> None:
    schema = pa.schema([("id", kind), ("val", pa.int64())])
    key = one_key(value, schema, ("id",))
    if key is not None:
        slow = KeyBatch(as_key_table(value, schema, ("id",)))
        assert len(key) == len(slow) == 1
        assert (key.values, key.names) == (slow.values, slow.names)
        assert key.table.equals(slow.table)


@each("value", [5, "a", (5, "a")])
@each("in_a_list", [False, True])
def test_integers_and_strings_need_no_arrow(value: Any, in_a_list: bool) -> None:
    parts = value if isinstance(value, tuple) else (value,)
    schema = pa.schema([(f"k{i}", pa.array([part]).type) for i, part in enumerate(parts)])
    key = one_key([value] if in_a_list else value, schema, schema.names)
    assert key is not None
    assert key.values == [value]
    assert key.table.num_rows == 1


def test_what_the_column_does_not_hold_is_left_to_arrow_which_refuses_it() -> None:
    schema = pa.schema([("id", pa.int8())])
    for value in (128, -129, True, "5", None):
        assert one_key(value, schema, ("id",)) is None
    with pytest.raises(InvalidCallError, match="128"):
        as_key_table(128, schema, ("id",))
