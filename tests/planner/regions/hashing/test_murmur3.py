"""The specification's murmur3 equals mmh3 for every key type and resists type promotion."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import mmh3
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exec_nodes.base.errors import InvalidCallError
from planner.regions.hashing.murmur3 import bucket, murmur3, murmur3_multi, scalar_murmur3
from tests.each import each


def reference(encoded: bytes | None) -> int | None:
    return None if encoded is None else mmh3.hash(encoded, 0, True)


def signed(value: int) -> bytes:
    return struct.pack("<q", value)


def unsigned(value: int) -> bytes:
    return struct.pack("<Q", value % 2**64)


Strategy = st.SearchStrategy[Any]
INTEGERS: list[tuple[pa.DataType, Strategy]] = [
    (getattr(pa, f"int{bits}")(), st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
    for bits in (8, 16, 32, 64)
]
# Types, their values and the bytes of a value.
HASHED: list[tuple[pa.DataType, Strategy, Callable[[Any], bytes]]] = [
    *((kind, numbers, signed) for kind, numbers in INTEGERS),
    (pa.uint8(), st.integers(0, 2**8 - 1), signed),
    (pa.uint16(), st.integers(0, 2**16 - 1), signed),
    (pa.uint32(), st.integers(0, 2**32 - 1), signed),
    (pa.uint64(), st.integers(0, 2**64 - 1), unsigned),
    (pa.bool_(), st.booleans(), signed),
    (pa.decimal128(38, 0), st.integers(-(2**63), 2**64 - 1), unsigned),
    (pa.decimal256(70, 3), st.integers(-(2**63), 2**64 - 1), unsigned),
    *((k, st.text(max_size=40), str.encode) for k in (pa.string(), pa.large_string())),
    (pa.string_view(), st.text(max_size=40), str.encode),
    *((k, st.binary(max_size=1000), bytes) for k in (pa.binary(), pa.large_binary())),
    (pa.binary_view(), st.binary(max_size=40), bytes),
    (pa.binary(7), st.binary(min_size=7, max_size=7), bytes),
]


@each("kind, values, encode", HASHED)
@given(data=st.data(), skip=st.integers(0, 3))
@settings(max_examples=20)
def test_values_of_every_type_are_hashed_by_their_bytes(
    kind: pa.DataType, values: Strategy, encode: Callable[[Any], bytes], data: Any, skip: int
) -> None:
    """Protocol rule 12: int32(5) and int64(5) are in the same region."""
    drawn = data.draw(st.lists(st.none() | values))[skip:]
    expected = [reference(None if value is None else encode(value)) for value in drawn]
    assert murmur3(pa.array([None] * skip + drawn, kind)[skip:]).to_pylist() == expected
    hash_of = scalar_murmur3(kind)
    if hash_of is not None:
        assert [None if v is None else hash_of(v) for v in drawn] == expected


def test_a_moment_hashes_the_same_in_every_unit_width_and_zone() -> None:
    """Protocol rule 12: promotion of a unit keeps the region."""
    seconds = [0, -1, 1_700_000_000, None]
    expected = [reference(None if v is None else signed(v * 10**6)) for v in seconds]
    for unit, factor in {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}.items():
        for zone in (None, "UTC", "Europe/Rome"):
            values = [None if v is None else v * factor for v in seconds]
            assert murmur3(pa.array(values, pa.timestamp(unit, zone))).to_pylist() == expected
    day = datetime.date(1969, 12, 30)
    assert murmur3(pa.array([day], pa.date32())) == murmur3(pa.array([day], pa.date64()))
    assert murmur3(pa.array([-2], pa.int16())) == murmur3(pa.array([day], pa.date32()))
    assert scalar_murmur3(pa.date32())(-2) == murmur3(pa.array([-2]))[0].as_py()  # type: ignore[misc]
    times = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
    hashes = {murmur3(pa.array([datetime.time(3, 4, 5)], kind))[0].as_py() for kind in times}
    assert len(hashes) == 1


@given(
    values=st.lists(st.none() | st.decimals(-(10**9), 10**9, places=2)),
    wide=st.lists(st.integers(-(10**37), 10**37)),
    scale=st.integers(2, 9),
)
@settings(max_examples=80)
def test_equal_decimals_hash_the_same_whatever_their_type(
    values: list[Decimal | None], wide: list[int], scale: int
) -> None:
    narrow = murmur3(pa.array(values, pa.decimal128(18, 2)))
    assert murmur3(pa.array(values, pa.decimal128(38, scale))) == narrow
    assert murmur3(pa.array(values, pa.decimal128(38, 2 + scale))) == narrow
    assert murmur3(pa.array(values, pa.decimal256(70, 30 + scale))) == narrow
    numbers = [Decimal(v).scaleb(-5) for v in wide]
    narrow = murmur3(pa.array(numbers, pa.decimal128(38, 5)))
    assert murmur3(pa.array(numbers, pa.decimal256(70, 12))) == narrow


ROWS = st.tuples(
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.none() | st.text(max_size=9),
    st.none() | st.binary(max_size=9),
)


@given(rows=st.lists(ROWS))
@settings(max_examples=80)
def test_several_columns_are_hashed_one_after_the_other_without_nulls(
    rows: list[tuple[int | None, str | None, bytes | None]],
) -> None:
    """Protocol rule 12 and specification 1: NULL only if all inputs are NULL."""
    types = [pa.int32(), pa.string(), pa.binary()]
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(types)]
    expected = []
    for number, text, raw in rows:
        parts = [b"" if number is None else signed(number), (text or "").encode(), raw or b""]
        missing = number is None and text is None and raw is None
        expected.append(reference(None if missing else b"".join(parts)))
    assert murmur3_multi(columns).to_pylist() == expected
    assert murmur3_multi([columns[0]]) == murmur3(columns[0])


def test_the_lowest_hash_has_a_bucket() -> None:
    """Protocol rule 12: `abs(-2**31)` must not overflow."""
    hashes = pa.array([-(2**31), 2**31 - 1, -1, 0, None], pa.int32())
    assert bucket(hashes, 7).to_pylist() == [2**31 % 7, (2**31 - 1) % 7, 1, 0, None]
    assert bucket(hashes, 2**31 - 1).to_pylist() == [1, 0, 1, 0, None]


def test_chunks_and_dictionaries_hash_like_plain_columns() -> None:
    plain = pa.array(["a", None, "bcdefg", "", "h"])
    expected = murmur3(plain)
    assert murmur3(pa.chunked_array([plain[:2], plain[2:]])) == expected
    assert murmur3(plain.dictionary_encode()) == expected
    assert len(murmur3(pa.chunked_array([], pa.int32()))) == 0
    assert murmur3(pa.nulls(2)).to_pylist() == [None, None]
    assert murmur3_multi([pa.nulls(5), plain]) == expected


def test_floats_are_refused_with_the_type_named() -> None:
    with pytest.raises(InvalidCallError, match="double"):
        murmur3(pa.array([1.0]))
