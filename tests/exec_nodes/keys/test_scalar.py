"""A key taken straight from its Python value is the key that Arrow would make of it."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_nodes.base.errors import InvalidCallError
from exec_nodes.keys.keys import KeyBatch, as_key_table
from exec_nodes.keys.scalar import one_key

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


@pytest.mark.parametrize("value", [5, "a", (5, "a")])
@pytest.mark.parametrize("in_a_list", [False, True])
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
