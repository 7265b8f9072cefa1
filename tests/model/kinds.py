"""Every key type and every region spec, as values that histories are drawn from.

A history knows its keys as small numbers; a `KeyKind` turns number `n` into a key value of its
type and back, so that one oracle of ints serves all types. Different numbers give different keys.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import pyarrow as pa

import memwal_sql as mw

UTC = dt.UTC
_START = dt.datetime(1967, 1, 2, 3, 4, 5)
WORDS = ("", "a", "ä", "Zürich", "日本", "o'clock", "under_score", "100%", "a" * 40)


@dataclass(frozen=True)
class KeyColumn:
    """One column of a key: its type, its values by number, and how SQL writes such a value."""

    name: str
    type: pa.DataType
    make: Callable[[int], Any]
    literal: Callable[[Any], str]


@dataclass(frozen=True)
class KeyKind:
    """A primary key. `size` is how many different keys there are."""

    name: str
    columns: tuple[KeyColumn, ...]
    size: int = 24

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @cached_property
    def _digits(self) -> int:
        return 3 if len(self.columns) > 1 else 10**9

    def value(self, n: int) -> tuple[Any, ...]:
        """Key `n`, one value a column."""
        values = []
        for column in self.columns[:-1]:
            values.append(column.make(n % self._digits))
            n //= self._digits
        return (*values, self.columns[-1].make(n))

    def arrays(self, numbers: Iterable[int]) -> list[pa.Array]:
        """The key columns of these keys."""
        rows = [self.value(n) for n in numbers]
        return [
            pa.array([row[i] for row in rows], column.type) for i, column in enumerate(self.columns)
        ]

    def table(self, numbers: Iterable[int]) -> pa.Table:
        """A table of the key columns only."""
        return pa.table(self.arrays(numbers), names=self.names)

    @cached_property
    def _numbers(self) -> dict[Hashable, int]:
        columns = [array.to_pylist() for array in self.arrays(range(self.size))]
        numbers = {row: n for n, row in enumerate(zip(*columns, strict=True))}
        assert len(numbers) == self.size, f"{self.name}: two numbers give one key"
        return numbers

    def numbers(self, table: pa.Table) -> list[int]:
        """The numbers of the keys in a result that has the key columns."""
        columns = []
        for column in self.columns:
            found = table.column(column.name)
            if found.type != column.type:
                found = found.cast(column.type)
            columns.append(found.to_pylist())
        return [self._numbers[row] for row in zip(*columns, strict=True)]

    def user_key(self, n: int) -> Any:
        """Key `n` as a caller of `get` writes it: a value, or a tuple for a composite key."""
        value = self.value(n)
        return value if len(value) > 1 else value[0]

    def equals(self, n: int) -> str:
        """SQL that is true for key `n` only."""
        parts = [
            f"{column.name} = {column.literal(value)}"
            for column, value in zip(self.columns, self.value(n), strict=True)
        ]
        return " AND ".join(parts)

    def any_of(self, numbers: Sequence[int]) -> str:
        """SQL that is true for these keys only."""
        if len(self.columns) == 1:
            column = self.columns[0]
            return f"{column.name} IN ({', '.join(self.literals(numbers))})"
        return "(" + " OR ".join(f"({self.equals(n)})" for n in numbers) + ")"

    def literals(self, numbers: Sequence[int]) -> list[str]:
        """The first key column of these keys, as SQL literals."""
        column = self.columns[0]
        return [column.literal(self.value(n)[0]) for n in numbers]

    def schema_fields(self) -> list[pa.Field]:
        return [pa.field(column.name, column.type, nullable=False) for column in self.columns]


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _word(n: int) -> str:
    return WORDS[n % len(WORDS)] + ("" if n < len(WORDS) else f"#{n}")


def _moment(n: int) -> dt.datetime:
    # Years, months, days and hours all vary, before and after 1970.
    return _START + dt.timedelta(days=173 * n, hours=5 * n)


def _arrow_cast(kind: str) -> Callable[[Any], str]:
    return lambda value: f"arrow_cast('{value}', '{kind}')"


def _integer(name: str, type_: pa.DataType, low: int, step: int) -> KeyColumn:
    return KeyColumn(name, type_, lambda n: low + step * n, str)


def _timestamp(unit: str, zone: str | None = None) -> KeyColumn:
    full = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}[unit]
    arrow = f'Timestamp({full}, Some("{zone}"))' if zone else f"Timestamp({full}, None)"

    def make(n: int) -> dt.datetime:
        moment = _moment(n)
        if unit != "s":
            moment += dt.timedelta(milliseconds=7 * n)
        return moment.replace(tzinfo=UTC) if zone else moment

    return KeyColumn("id", pa.timestamp(unit, zone), make, _arrow_cast(arrow))


def _hex(value: bytes) -> str:
    return f"X'{value.hex()}'"


INT64 = _integer("id", pa.int64(), -7, 1)
TEXT = KeyColumn("id", pa.string(), _word, _text)
DATE = KeyColumn("id", pa.date32(), lambda n: _moment(n).date(), lambda v: f"DATE '{v}'")
DECIMAL = KeyColumn(
    "id",
    pa.decimal128(10, 2),
    lambda n: Decimal(n * 37 - 90).scaleb(-2),
    lambda v: f"CAST('{v}' AS DECIMAL(10, 2))",
)


def _named(column: KeyColumn, name: str) -> KeyColumn:
    return KeyColumn(name, column.type, column.make, column.literal)


def _one(name: str, column: KeyColumn, size: int = 24) -> KeyKind:
    return KeyKind(name, (column,), size)


KEY_KINDS: tuple[KeyKind, ...] = (
    _one("int8", _integer("id", pa.int8(), -128, 11)),
    _one("int16", _integer("id", pa.int16(), -32768, 2849)),
    _one("int32", _integer("id", pa.int32(), -(2**31), 186_000_000)),
    _one("int64", INT64),
    _one("int64_wide", _integer("id", pa.int64(), -(2**63), 2**59)),
    _one("uint8", _integer("id", pa.uint8(), 0, 11)),
    _one("uint16", _integer("id", pa.uint16(), 0, 2849)),
    _one("uint32", _integer("id", pa.uint32(), 2**32 - 30, 1)),
    _one("uint64", _integer("id", pa.uint64(), 2**63 - 12, 1)),
    _one("bool", KeyColumn("id", pa.bool_(), bool, lambda v: str(v).lower()), size=2),
    _one("string", TEXT),
    _one("large_string", KeyColumn("id", pa.large_string(), _word, _text)),
    _one("binary", KeyColumn("id", pa.binary(), lambda n: _word(n).encode() + b"\x00", _hex)),
    _one("large_binary", KeyColumn("id", pa.large_binary(), lambda n: _word(n).encode(), _hex)),
    _one(
        "fixed_binary",
        KeyColumn(
            "id",
            pa.binary(3),
            lambda n: bytes((255 - n, 0, n)),
            lambda v: f"arrow_cast({_hex(v)}, 'FixedSizeBinary(3)')",
        ),
    ),
    _one("date32", DATE),
    _one(
        "date64",
        KeyColumn("id", pa.date64(), lambda n: _moment(n).date(), _arrow_cast("Date64")),
    ),
    _one(
        "time32",
        KeyColumn(
            "id",
            pa.time32("s"),
            lambda n: dt.time(n, 59, n),
            _arrow_cast("Time32(Second)"),
        ),
    ),
    _one(
        "time64",
        KeyColumn(
            "id",
            pa.time64("us"),
            lambda n: dt.time(n, 59, n, n),
            _arrow_cast("Time64(Microsecond)"),
        ),
    ),
    *(_one(f"timestamp_{unit}", _timestamp(unit)) for unit in ("s", "ms", "us", "ns")),
    _one("timestamp_utc", _timestamp("us", "UTC")),
    _one("timestamp_berlin", _timestamp("ms", "Europe/Berlin")),
    _one("decimal128", DECIMAL),
    _one(
        "decimal256",
        KeyColumn(
            "id",
            pa.decimal256(45, 3),
            lambda n: Decimal(n - 9).scaleb(25),
            lambda v: f"arrow_cast('{v:f}', 'Decimal256(45, 3)')",
        ),
    ),
    KeyKind("int64_string", (_named(INT64, "a"), _named(TEXT, "b"))),
    KeyKind("date_int32", (_named(DATE, "a"), _integer("b", pa.int32(), -3, 2))),
    KeyKind(
        "string_decimal_int16",
        (
            _named(TEXT, "a"),
            _named(DECIMAL, "b"),
            _integer("c", pa.int16(), -1, 1),
        ),
    ),
    KeyKind(
        "timestamp_binary",
        (
            _named(_timestamp("us"), "a"),
            KeyColumn("b", pa.binary(), lambda n: b"\xff" * n, _hex),
        ),
    ),
)


@dataclass(frozen=True)
class RegionKind:
    """A way to divide a table. `fields` gives the `regions` argument for a key kind, or None where
    it does not apply; `unsharded` and `manual` are no specs."""

    name: str
    fields: Callable[[KeyKind], Any]

    @property
    def is_manual(self) -> bool:
        return self.name == "manual"

    def applies(self, kind: KeyKind) -> bool:
        return self.name in ("unsharded", "manual") or self.fields(kind) is not None

    def region_of(self, n: int) -> str | None:
        """The manual region of key `n`; None where the spec decides."""
        return f"region-{n % 3}" if self.is_manual else None


def _dated(part: Callable[[str], Any], *, times: bool = False) -> Callable[[KeyKind], Any]:
    def fields(kind: KeyKind) -> Any:
        column = kind.columns[0]
        fits = pa.types.is_timestamp(column.type) or (
            pa.types.is_time(column.type) if times else pa.types.is_date(column.type)
        )
        return [part(column.name)] if fits else None

    return fields


def _truncate(kind: KeyKind) -> Any:
    column = kind.columns[0]
    if pa.types.is_integer(column.type) or pa.types.is_decimal128(column.type):
        return [mw.truncate(column.name, 8)]
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return [mw.truncate(column.name, 1)]
    return None


def _expression(kind: KeyKind) -> Any:
    column = kind.columns[0]
    if pa.types.is_integer(column.type):
        return [mw.expression("CAST(col0 % 3 AS BIGINT)", column.name)]
    if pa.types.is_string(column.type):
        return [mw.expression("length(col0) % 3", column.name)]
    if pa.types.is_date(column.type):
        return [mw.expression("date_part('month', col0) > 6", column.name)]
    return None


def _several(kind: KeyKind) -> Any:
    if len(kind.columns) > 1:
        return [mw.bucket(kind.columns[0].name, 2), mw.identity(kind.columns[-1].name)]
    if pa.types.is_date(kind.columns[0].type) or pa.types.is_timestamp(kind.columns[0].type):
        return [mw.year("id"), mw.month("id")]
    return None


REGION_KINDS: tuple[RegionKind, ...] = (
    RegionKind("unsharded", lambda kind: None),
    RegionKind("identity", lambda kind: [mw.identity(kind.columns[0].name)]),
    RegionKind("bucket", lambda kind: [mw.bucket(kind.columns[-1].name, 4)]),
    RegionKind("multi_bucket", lambda kind: [mw.multi_bucket(kind.names, 3)]),
    RegionKind("truncate", _truncate),
    RegionKind("year", _dated(mw.year)),
    RegionKind("month", _dated(mw.month)),
    RegionKind("day", _dated(mw.day)),
    RegionKind("hour", _dated(mw.hour, times=True)),
    RegionKind("expression", _expression),
    RegionKind("several", _several),
    RegionKind("manual", lambda kind: mw.manual()),
)

KINDS_BY_NAME = {kind.name: kind for kind in KEY_KINDS}
REGIONS_BY_NAME = {kind.name: kind for kind in REGION_KINDS}
COMBINATIONS = [
    (key, region) for key in KEY_KINDS for region in REGION_KINDS if region.applies(key)
]
