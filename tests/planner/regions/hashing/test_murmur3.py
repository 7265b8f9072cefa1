"""The specification's murmur3 equals mmh3 for every key type and resists type promotion."""

from __future__ import annotations

import datetime
import struct
from decimal import Decimal

import mmh3
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exec_nodes.base.errors import InvalidCallError
from planner.regions.hashing.murmur3 import bucket, murmur3, murmur3_multi, scalar_murmur3
from tests.each import each

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
}


def reference(encoded: bytes | None) -> int | None:
    return None if encoded is None else mmh3.hash(encoded, 0, True)


@each("name", INTEGERS)
def test_an_integer_of_any_width_is_hashed_as_eight_bytes(name: str) -> None:
    """Protocol rule 12: int32(5) and int64(5) are in the same region."""
    low, high = INTEGERS[name]
    values = [low, high, 0, 1, None, high // 3]
    expected = [reference(None if v is None else struct.pack("<q", v)) for v in values]
    assert murmur3(pa.array(values, pa.type_for_alias(name))).to_pylist() == expected


def test_unsigned_integers_beyond_int64_are_hashed_by_their_own_eight_bytes() -> None:
    values = [2**63, 2**64 - 1, 7]
    expected = [reference(struct.pack("<Q", v)) for v in values]
    assert murmur3(pa.array(values, pa.uint64())).to_pylist() == expected


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
@given(values=st.lists(st.none() | st.text(max_size=40)), skip=st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_text_is_hashed_as_utf8(kind: pa.DataType, values: list[str | None], skip: int) -> None:
    expected = [reference(None if v is None else v.encode()) for v in values[skip:]]
    assert murmur3(pa.array(values, kind)[skip:]).to_pylist() == expected


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
@given(values=st.lists(st.none() | st.binary(max_size=1000)), skip=st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_binary_is_hashed_as_it_is(kind: pa.DataType, values: list[bytes], skip: int) -> None:
    expected = [reference(v) for v in values[skip:]]
    assert murmur3(pa.array(values, kind)[skip:]).to_pylist() == expected


@given(values=st.lists(st.none() | st.binary(min_size=7, max_size=7)), skip=st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_fixed_size_binary_is_hashed_as_it_is(values: list[bytes], skip: int) -> None:
    expected = [reference(v) for v in values[skip:]]
    assert murmur3(pa.array(values, pa.binary(7))[skip:]).to_pylist() == expected


def test_a_timestamp_hashes_the_same_in_every_unit_and_zone() -> None:
    """Protocol rule 12: promotion of a unit keeps the region."""
    seconds = [0, -1, 1_700_000_000, None]
    expected = [reference(None if v is None else struct.pack("<q", v * 10**6)) for v in seconds]
    for unit, factor in {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}.items():
        for zone in (None, "UTC", "Europe/Rome"):
            values = [None if v is None else v * factor for v in seconds]
            assert murmur3(pa.array(values, pa.timestamp(unit, zone))).to_pylist() == expected


def test_dates_and_times_hash_the_same_in_every_width() -> None:
    day = datetime.date(1969, 12, 30)
    assert murmur3(pa.array([day], pa.date32())) == murmur3(pa.array([day], pa.date64()))
    assert murmur3(pa.array([-2], pa.int16())) == murmur3(pa.array([day], pa.date32()))
    times = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
    hashes = {murmur3(pa.array([datetime.time(3, 4, 5)], kind))[0].as_py() for kind in times}
    assert len(hashes) == 1


@given(values=st.lists(st.none() | st.decimals(-(10**9), 10**9, places=2)), scale=st.integers(2, 9))
@settings(max_examples=80, deadline=None)
def test_equal_decimals_hash_the_same_whatever_their_type(
    values: list[Decimal | None], scale: int
) -> None:
    narrow = murmur3(pa.array(values, pa.decimal128(18, 2)))
    assert murmur3(pa.array(values, pa.decimal128(38, scale))) == narrow
    assert murmur3(pa.array(values, pa.decimal128(38, 2 + scale))) == narrow
    assert murmur3(pa.array(values, pa.decimal256(70, 30 + scale))) == narrow


@given(values=st.lists(st.none() | st.integers(-(2**63), 2**64 - 1)))
@settings(max_examples=60, deadline=None)
def test_a_whole_decimal_hashes_like_the_integer(values: list[int | None]) -> None:
    expected = [reference(None if v is None else (v % 2**64).to_bytes(8, "little")) for v in values]
    assert murmur3(pa.array(values, pa.decimal128(38, 0))).to_pylist() == expected
    assert murmur3(pa.array(values, pa.decimal256(70, 3))).to_pylist() == expected


@given(values=st.lists(st.integers(-(10**37), 10**37)))
@settings(max_examples=60, deadline=None)
def test_wide_decimals_hash_the_same_whatever_their_type(values: list[int]) -> None:
    numbers = [Decimal(v).scaleb(-5) for v in values]
    narrow = murmur3(pa.array(numbers, pa.decimal128(38, 5)))
    assert murmur3(pa.array(numbers, pa.decimal256(70, 12))) == narrow


def test_booleans_hash_like_zero_and_one() -> None:
    expected = murmur3(pa.array([0, 1, None], pa.int64()))
    assert murmur3(pa.array([False, True, None])) == expected


@given(
    rows=st.lists(
        st.tuples(
            st.none() | st.integers(-(2**31), 2**31 - 1),
            st.none() | st.text(max_size=9),
            st.none() | st.binary(max_size=9),
        )
    )
)
@settings(max_examples=80, deadline=None)
def test_several_columns_are_hashed_one_after_the_other_without_nulls(
    rows: list[tuple[int | None, str | None, bytes | None]],
) -> None:
    """Protocol rule 12 and specification 1: NULL only if all inputs are NULL."""
    types = [pa.int32(), pa.string(), pa.binary()]
    columns = [pa.array([r[i] for r in rows], types[i]) for i in range(3)]
    expected = []
    for number, text, raw in rows:
        parts = [
            b"" if number is None else struct.pack("<q", number),
            b"" if text is None else text.encode(),
            raw or b"",
        ]
        missing = number is None and text is None and raw is None
        expected.append(reference(None if missing else b"".join(parts)))
    assert murmur3_multi(columns).to_pylist() == expected


def test_a_single_column_hashes_alike_with_both_functions() -> None:
    column = pa.array([1, None, 3], pa.int8())
    assert murmur3_multi([column]) == murmur3(column)
    assert murmur3_multi([pa.nulls(3), column]) == murmur3(column)
    assert murmur3_multi([pa.nulls(3), pa.nulls(3)]).null_count == 3


def test_the_lowest_hash_has_a_bucket() -> None:
    """Protocol rule 12: `abs(-2**31)` must not overflow."""
    hashes = pa.array([-(2**31), 2**31 - 1, -1, 0, None], pa.int32())
    assert bucket(hashes, 7).to_pylist() == [2**31 % 7, (2**31 - 1) % 7, 1, 0, None]
    assert bucket(hashes, 2**31 - 1).to_pylist() == [1, 0, 1, 0, None]


def test_chunks_dictionaries_and_slices_hash_like_plain_columns() -> None:
    plain = pa.array(["a", None, "bcdefg", "", "h"])
    expected = murmur3(plain)
    assert murmur3(pa.chunked_array([plain[:2], plain[2:]])) == expected
    assert murmur3(plain.dictionary_encode()) == expected
    assert murmur3(pa.concat_arrays([plain, plain])[5:]) == expected
    assert len(murmur3(pa.chunked_array([], pa.int32()))) == 0
    assert len(murmur3(pa.array([], pa.string()))) == 0


def test_a_column_of_no_type_hashes_to_null() -> None:
    assert murmur3(pa.nulls(2)).to_pylist() == [None, None]


def test_floats_are_refused_with_the_type_named() -> None:
    with pytest.raises(InvalidCallError, match="double"):
        murmur3(pa.array([1.0]))


@each(
    "kind, value, key",
    [
        (pa.int32(), 5, 5),
        (pa.uint64(), 2**64 - 1, 2**64 - 1),
        (pa.bool_(), True, True),
        (pa.string(), "é", "é"),
        (pa.binary(), b"\0x", b"\0x"),
        (pa.date32(), 19_000, 19_000),
    ],
)
def test_one_key_value_hashes_like_its_column(
    kind: pa.DataType, value: object, key: object
) -> None:
    column = pa.array([value], kind)
    hash_of = scalar_murmur3(kind)
    assert hash_of is not None
    assert hash_of(key) == murmur3(column)[0].as_py()
