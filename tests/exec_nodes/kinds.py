"""A column of distinct keys for every key type, awkward values included."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

TEXTS = ["", "it's", 'quo"te', "back`tick\\", "né€", "a" * 70, "new\nline -- /* $1 {}", "\x00"]
BLOBS = [b"", b"\x00", b"\x00\x01", b"'", b"\xff" * 9, b"1234567", b"12345678", b"123456789"]


def _ints(kind: pa.DataType, low: int, high: int) -> pa.Array:
    return pa.array([low, high, 0, 1, 5, 17], kind)


def _view(values: list[int], raw: pa.DataType, kind: pa.DataType) -> pa.Array:
    return pa.array(values, raw).view(kind)


COLUMNS: dict[str, pa.Array] = {
    **{
        f"int{n}": _ints(getattr(pa, f"int{n}")(), -(2 ** (n - 1)), 2 ** (n - 1) - 1)
        for n in (8, 16, 32, 64)
    },
    **{
        f"uint{n}": pa.array([0, 1, 5, 2**n - 1], getattr(pa, f"uint{n}")())
        for n in (8, 16, 32, 64)
    },
    "bool": pa.array([True, False]),
    "string": pa.array(TEXTS),
    "large_string": pa.array(TEXTS, pa.large_string()),
    "binary": pa.array(BLOBS),
    "large_binary": pa.array(BLOBS, pa.large_binary()),
    "fixed": pa.array([b"\x00'", b"ab", b"\xff\x00"], pa.binary(2)),
    "date32": _view([-200, 0, 20_000], pa.int32(), pa.date32()),
    "date64": _view([-86_400_000, 0, 86_400_000_000], pa.int64(), pa.date64()),
    "time32_s": _view([0, 1, 86_399], pa.int32(), pa.time32("s")),
    "time32_ms": _view([0, 1, 86_399_999], pa.int32(), pa.time32("ms")),
    "time64_us": _view([0, 1, 86_399_999_999], pa.int64(), pa.time64("us")),
    "time64_ns": _view([0, 1, 86_399_999_999_999], pa.int64(), pa.time64("ns")),
    "timestamp_s": _view([-2, 0, 2**33], pa.int64(), pa.timestamp("s")),
    "timestamp_ms": _view([-2, 0, 2**43], pa.int64(), pa.timestamp("ms")),
    "timestamp_us_utc": _view([-2, 0, 2**52], pa.int64(), pa.timestamp("us", "UTC")),
    "timestamp_ns_zone": _view([-2, 0, 2**62], pa.int64(), pa.timestamp("ns", "Europe/Berlin")),
    "decimal128": pa.array([Decimal("-2.25"), Decimal("1.50"), Decimal(0)], pa.decimal128(10, 2)),
    "decimal128_wide": pa.array(
        [Decimal("123456789012345678901234567890.12")], pa.decimal128(38, 2)
    ),
    "decimal128_tens": pa.array([Decimal(-200), Decimal(100)], pa.decimal128(5, -2)),
    "decimal256": pa.array([Decimal("-2.25"), Decimal("1.50")], pa.decimal256(50, 2)),
}
