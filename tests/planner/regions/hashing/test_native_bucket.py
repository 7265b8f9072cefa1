"""Native's bucket function, equal to what pylance computes for every type that it takes."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.schema import LanceSchema

from exec_nodes.base.errors import InvalidCallError
from planner.regions.hashing.murmur3 import bucket, murmur3
from planner.regions.hashing.native_bucket import native_bucket
from tests.each import each

SIGNED = st.integers(-(2**63), 2**63 - 1)
TYPES = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
    pa.float32(),
    pa.float64(),
    pa.date32(),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
    pa.timestamp("s"),
    pa.timestamp("ms", "UTC"),
    pa.timestamp("us"),
    pa.timestamp("ns", "Europe/Rome"),
]


def pylance_buckets(array: pa.Array, num_buckets: int) -> list[int]:
    field = {
        "field_id": "b",
        "source_ids": [0],
        "transform": "bucket",
        "expression": None,
        "result_type": "int32",
        "parameters": {"num_buckets": str(num_buckets)},
    }
    batch = pa.record_batch({"id": array})
    spec = {"spec_id": 1, "fields": [field]}
    schema = LanceSchema.from_pyarrow(batch.schema)
    column: list[int] = lance.evaluate_sharding_spec(batch, spec, schema).column(0).to_pylist()
    return column


@each("kind", TYPES)
@given(raw=st.lists(st.none() | SIGNED, max_size=30), num_buckets=st.integers(1, 2**31 - 1))
@settings(max_examples=30, deadline=None)
def test_fixed_width_values_get_native_buckets(
    kind: pa.DataType, raw: list[int | None], num_buckets: int
) -> None:
    """Protocol rule 12: a field stored as `transform: bucket` follows native's rule."""
    array = _from_bits(raw, kind)
    assert native_bucket(array, num_buckets).to_pylist() == pylance_buckets(array, num_buckets)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
@given(
    values=st.lists(st.none() | st.text(max_size=30), max_size=30), num_buckets=st.integers(1, 99)
)
@settings(max_examples=100, deadline=None)
def test_text_gets_native_buckets(
    kind: pa.DataType, values: list[str | None], num_buckets: int
) -> None:
    """Protocol rule 12: native mixes the tail bytes of a string in its own way."""
    array = pa.array(values, kind)
    assert native_bucket(array, num_buckets).to_pylist() == pylance_buckets(array, num_buckets)


@each("value", [0.0, -0.0, float("nan"), -float("nan"), float("inf"), 1.25])
@each("kind", [pa.float32(), pa.float64()])
def test_special_floats_get_native_buckets(kind: pa.DataType, value: float) -> None:
    array = pa.array([value], kind)
    assert native_bucket(array, 97).to_pylist() == pylance_buckets(array, 97)


def test_null_is_in_bucket_zero() -> None:
    assert native_bucket(pa.array([None, "a"]), 8).to_pylist() == [0, 1]
    assert native_bucket(pa.nulls(2), 8).to_pylist() == [0, 0]


def test_native_buckets_are_not_the_specifications() -> None:
    """Protocol rule 12: mixing the two up would send keys to other regions."""
    numbers = pa.array(np.arange(1000), pa.int32())
    words = pa.array([f"key {n}" for n in range(1000)])
    assert native_bucket(numbers, 16) != bucket(murmur3(numbers), 16)
    assert native_bucket(words, 16) != bucket(murmur3(words), 16)


def test_types_without_a_native_bucket_are_refused() -> None:
    with pytest.raises(InvalidCallError, match="binary"):
        native_bucket(pa.array([b"x"]), 4)
    with pytest.raises(InvalidCallError, match="num_buckets=0"):
        native_bucket(pa.array([1]), 0)


def _from_bits(raw: list[int | None], kind: pa.DataType) -> pa.Array:
    nulls = np.array([v is None for v in raw], np.bool_)
    bits = np.array([v or 0 for v in raw], np.int64)
    if pa.types.is_boolean(kind):
        return pa.array(bits % 2 == 1, mask=nulls)
    narrow = bits.astype(f"i{kind.bit_width // 8}")
    valid = pa.array(~nulls, pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(kind, len(raw), [valid, pa.py_buffer(narrow)])
