"""Lance's own bucket function, by which tables of LanceDB are routed: its values never change."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from exec_nodes.base.errors import InvalidCallError
from planner.regions.hashing.murmur3 import bucket, murmur3
from planner.regions.hashing.native_bucket import native_bucket
from tests.each import each

NARROW, WIDE, TEXT = [69, 61, 86, 0], [6, 67, 68, 0], [47, 17, 61, 0]
KINDS = {
    **dict.fromkeys([pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()], NARROW),
    **dict.fromkeys([pa.uint32(), pa.date32(), pa.time32("s"), pa.time32("ms")], NARROW),
    **dict.fromkeys([pa.int64(), pa.uint64(), pa.time64("us"), pa.timestamp("s")], WIDE),
    pa.timestamp("ns", "Europe/Rome"): WIDE,
    pa.float32(): [69, 54, 80, 0],
    pa.float64(): [6, 96, 2, 0],
    pa.string(): TEXT,
    pa.large_string(): TEXT,
}


@each("kind, buckets", KINDS.items())
def test_values_of_every_type_are_in_lance_s_buckets(kind: pa.DataType, buckets: list[int]) -> None:
    """Protocol rule 12: a field stored as `transform: bucket` follows native's rule; NULL is in
    bucket 0."""
    numbers = pa.array([0, 1, 100, None])
    if pa.types.is_temporal(kind):
        numbers = numbers.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    array = numbers.cast(kind)
    assert native_bucket(array, 97).to_pylist() == buckets
    chunks = pa.chunked_array([array[1:], array])
    assert native_bucket(chunks, 97).to_pylist() == [*buckets[1:], *buckets]


def test_odd_values_are_in_lance_s_buckets() -> None:
    for array, buckets in (
        (pa.array([True, False]), [61, 69]),
        (pa.array([2**63 - 1, -(2**63)]), [46, 20]),
        (pa.array(["é", "key 7", ""]), [13, 24, 0]),
        (pa.array([-0.0, float("nan"), float("inf")]), [6, 62, 47]),
        (pa.nulls(2), [0, 0]),
    ):
        assert native_bucket(array, 97).to_pylist() == buckets


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
