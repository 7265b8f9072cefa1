"""Live rows beside a dict: every type of columns and keys, changes and questions in any order."""

from __future__ import annotations

import datetime
import decimal
import struct
from collections.abc import Callable
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from exec_nodes.keys.keys import key_column
from memwal_native import LiveImage
from tests.soak import SOAK

DAY = datetime.date(2026, 1, 1)
NOON = datetime.datetime(2026, 1, 1, 12)
SECOND = datetime.timedelta(seconds=1)


def _time(number: int) -> datetime.time:
    return (NOON + number * SECOND).time()


# A value of the type for a number; NULL for numbers that 5 divides.
KINDS: list[tuple[pa.DataType, Callable[[int], Any]]] = [
    *((kind, lambda n: n % 128) for kind in (pa.int8(), pa.uint8())),
    *((kind, lambda n: n) for kind in (pa.int16(), pa.uint16(), pa.int32(), pa.uint32())),
    *((kind, lambda n: n << 40) for kind in (pa.int64(), pa.uint64())),
    (pa.float16(), lambda n: float(n % 100)),
    (pa.float32(), lambda n: n / 4),
    (pa.float64(), lambda n: n / 8),
    (pa.bool_(), lambda n: n % 3 == 0),
    *((kind, lambda n: DAY + n * datetime.timedelta(1)) for kind in (pa.date32(), pa.date64())),
    *((pa.time32(unit), _time) for unit in ("s", "ms")),
    *((pa.time64(unit), _time) for unit in ("us", "ns")),
    *((pa.timestamp(unit), lambda n: NOON + n * SECOND) for unit in ("s", "ms", "us")),
    (pa.timestamp("us", "UTC"), lambda n: NOON.replace(tzinfo=ZoneInfo("UTC")) + n * SECOND),
    *((pa.duration(unit), lambda n: n * SECOND) for unit in ("s", "us")),
    (pa.decimal128(20, 2), lambda n: decimal.Decimal(n * 100 + 1) / 100),
    (pa.decimal256(50, 3), lambda n: decimal.Decimal(n * 10**20 + 1) / 1000),
    *((pa.binary(width), lambda n, w=width: (b"%048d" % n)[-w:]) for width in (1, 3, 32, 48)),
    *((kind, lambda n: "né" * (n % 7) + str(n)) for kind in (pa.string(), pa.large_string())),
    *((kind, lambda n: b"\0" * (n % 7) + b"%d" % n) for kind in (pa.binary(), pa.large_binary())),
    *(
        (kind, lambda n: [n, None, n + 1][: n % 4])
        for kind in (pa.list_(pa.int32()), pa.large_list(pa.int32()))
    ),
    (pa.list_(pa.string()), lambda n: [str(n)] * (n % 3)),
    (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        lambda n: {"a": n, "b": None if n % 2 else "b"},
    ),
    (pa.map_(pa.string(), pa.int32()), lambda n: [(str(n), n)] * (n % 2)),
    (pa.null(), lambda n: None),
]
INTEGERS = (pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64())
KEYS: list[tuple[list[pa.DataType], Callable[[int], tuple[Any, ...]]]] = [
    *(([kind], lambda n: (n,)) for kind in INTEGERS),
    ([pa.date32()], lambda n: (DAY + n * datetime.timedelta(1),)),
    ([pa.timestamp("us")], lambda n: (NOON + n * SECOND,)),
    ([pa.bool_()], lambda n: (n % 2 == 0,)),
    ([pa.decimal128(10, 1)], lambda n: (decimal.Decimal(f"{n}.0"),)),
    *(([kind], lambda n: ("k" * (n % 3) + str(n),)) for kind in (pa.string(), pa.large_string())),
    *(([kind], lambda n: (b"k%03d" % n,)) for kind in (pa.binary(), pa.binary(4))),
    ([pa.int64(), pa.string()], lambda n: (n % 5, "x" * (n // 5))),
    ([pa.bool_(), pa.int16(), pa.binary()], lambda n: (n % 2 == 0, n, b"")),
]  # fmt: skip


def integral(kinds: list[pa.DataType]) -> int | None:
    """The number of the key column that the image needs no second form of."""
    (kind, *others) = kinds
    is_word = pa.types.is_integer(kind) or pa.types.is_temporal(kind)
    return 0 if is_word and not others else None


def scanned(image: LiveImage, columns: list[int], keys: pa.Array | None = None) -> pa.Table:
    """Some columns of all rows, or of those with some keys."""
    scan = image.scan(image.state, columns, keys, [], None, 0)
    assert scan is not None
    parts = [pa.table(scan.partition(number)) for number in range(scan.partitions)]
    # Tables that are put together lose the number of their rows if they have no columns.
    return parts[0] if len(parts) == 1 else pa.concat_tables(parts)


class Rows:
    """An image of key columns and one more, and a dict of the same rows."""

    def __init__(self, kinds: list[pa.DataType], kind: pa.DataType) -> None:
        keys = [pa.field(f"k{place}", each, nullable=False) for place, each in enumerate(kinds)]
        self.schema = pa.schema([*keys, pa.field("v", kind)])
        self.image = LiveImage(self.schema, integral(kinds), 0)
        self.rows: dict[tuple[Any, ...], Any] = {}
        self.state = 0
        self._held: list[tuple[pa.Table, str]] = []

    @property
    def all(self) -> list[int]:
        return list(range(len(self.schema)))

    def keys_of(self, keys: list[tuple[Any, ...]]) -> pa.Array:
        columns = [pa.array(list(column), self.schema.field(place).type)
                   for place, column in enumerate(zip(*keys, strict=True))]  # fmt: skip
        return key_column(columns)

    def batch(self, rows: list[tuple[tuple[Any, ...], Any]]) -> pa.RecordBatch:
        columns = zip(*((*key, value) for key, value in rows), strict=True)
        arrays = [pa.array(list(column), field.type)
                  for column, field in zip(columns, self.schema, strict=True)]  # fmt: skip
        return pa.record_batch(arrays, schema=self.schema)

    def apply(self, *changes: list[tuple[tuple[Any, ...], Any, bool]]) -> None:
        """Rows with their keys, and whether each is deleted."""
        parts = []
        for rows in changes:
            gone = [is_gone for *_, is_gone in rows]
            flags = pa.array(gone, pa.bool_()) if any(gone) or len(rows) % 2 else None
            of_keys = self.keys_of([key for key, *_ in rows])
            # A slice, as rows of a MemTable are.
            batch = self.batch([(key, value) for key, value, _ in rows[:1] + rows]).slice(1)
            parts.append((batch, of_keys, flags))
            for key, value, is_gone in rows:
                if is_gone:
                    self.rows.pop(key, None)
                else:
                    self.rows[key] = value
        self.state += 1
        self.image.apply(parts, self.state)

    def check(self, columns: list[int]) -> None:
        table = scanned(self.image, columns)
        assert self.image.state == self.state
        assert table.schema == pa.schema([self.schema.field(column) for column in columns])
        assert len(table) == len(self.image) == len(self.rows)
        table.validate(full=True)
        expected = [(*key, value) for key, value in self.rows.items()]
        got = list(zip(*table.to_pydict().values(), strict=True)) if columns else []
        assert sorted(map(repr, got)) == sorted(
            repr(tuple(row[column] for column in columns)) for row in expected if columns
        )
        self._held.append((table, repr(table.to_pydict())))

    def check_held(self) -> None:
        """What was read stays as it was, whatever changes afterwards."""
        for table, before in self._held:
            assert repr(table.to_pydict()) == before

    def take(self, keys: list[tuple[Any, ...]], columns: list[int]) -> None:
        table = scanned(self.image, columns, self.keys_of(keys))
        distinct = dict.fromkeys(keys)
        expected = [(*key, self.rows[key]) for key in distinct if key in self.rows]
        assert len(table) == len(expected)
        got = list(zip(*table.to_pydict().values(), strict=True)) if columns else []
        assert got == [tuple(row[column] for column in columns) for row in expected if columns]


def history(random: Random, rows: Rows, key: Callable[[int], tuple[Any, ...]],
            value: Callable[[int], Any]) -> None:  # fmt: skip
    last = len(rows.schema) - 1
    loading: dict[tuple[Any, ...], Any] | None = None
    of_keys = integral([field.type for field in rows.schema][:last]) is not None

    def change() -> tuple[tuple[Any, ...], Any, bool]:
        number = random.randrange(1, 40)
        held = None if number % 5 == 0 else value(random.randrange(100))
        return key(random.randrange(30)), held, random.random() < 0.3

    for place in rows.all:
        assert rows.image.admit(place)
    for _ in range(12):
        readable = [place for place in rows.all if rows.image.has(place)]
        assert readable == rows.all or not of_keys or readable == [0]
        columns = random.sample(readable, random.randint(0, len(readable)))
        match random.randrange(6):
            case 0 | 1:
                count = random.randint(1, 3)
                rows.apply(*([change() for _ in range(random.randint(1, 9))] for _ in range(count)))
            case 2:
                rows.check(columns)
            case 3:
                rows.take([key(random.randrange(30)) for _ in range(random.randint(1, 6))], columns)
            case 4:
                rows.image.settle()
            case _ if loading is None:
                rows.image.evict(last)
                assert not rows.image.has(last)
                assert rows.image.admit(last)
                loading = dict(rows.rows)
            case _:
                one = pa.schema([rows.schema.field(last)])
                columns_of = [pa.array([held], one.field(0).type) for held in loading.values()]
                for key_of, column in zip(loading, columns_of, strict=True):
                    values = pa.record_batch([column], schema=one)
                    rows.image.load([last], values, rows.keys_of([key_of]))
                rows.image.loaded([last])
                loading = None
    readable = [place for place in rows.all if rows.image.has(place)]
    rows.check(readable)
    rows.check_held()


@pytest.mark.parametrize("case", range(len(KINDS)), ids=[str(kind) for kind, _ in KINDS])
def test_columns_of_every_type_are_those_of_a_dict(case: int) -> None:
    (kind, value) = KINDS[case]
    for seed in range(6 * SOAK):
        random = Random(seed * 1000 + case)
        kinds, key = KEYS[random.randrange(len(KEYS))]
        history(random, Rows(kinds, kind), key, value)


@pytest.mark.parametrize("case", range(len(KEYS)), ids=[str(kinds) for kinds, _ in KEYS])
def test_keys_of_every_type_are_those_of_a_dict(case: int) -> None:
    kinds, key = KEYS[case]
    for seed in range(6 * SOAK):
        random = Random(seed * 1000 + case)
        history(random, Rows(kinds, pa.int64()), key, lambda n: n)


def test_floats_keep_their_bits() -> None:
    rows = Rows([pa.int64()], pa.float64())
    rows.image.admit(1)
    bits = [0x8000000000000000, 0x7FF8000000000001, 0xFFF0000000000000, 0]
    values = [struct.unpack("d", struct.pack("Q", each))[0] for each in bits]
    rows.apply([((place,), value, False) for place, value in enumerate(values)])
    column = scanned(rows.image, [1])["v"].combine_chunks()
    assert column.view(pa.uint64()).to_pylist() == bits


def test_rows_of_several_chunks_are_changed_by_key() -> None:
    """Beyond 65,536 rows, with results that are held meanwhile."""
    count = 70_000
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
    image = LiveImage(schema, 0, "built")
    assert all(image.admit(column) for column in (0, 1))

    def change(keys: list[int], text: str, gone: bool = False) -> None:
        batch = pa.record_batch(
            [pa.array(keys), pa.array([f"{text}{k}" for k in keys])], schema=schema
        )
        flags = pa.array([gone] * len(keys))
        image.apply([(batch, batch.column(0), flags)], text)

    def texts() -> dict[int, str]:
        table = scanned(image, [0, 1])
        return dict(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))

    image.reserve(count)
    change(list(range(count)), "a")
    held = scanned(image, [0, 1])
    before = held.to_pydict()
    expected = {key: f"a{key}" for key in range(count)}
    assert texts() == expected
    some = [*range(0, count, 7000), count - 1, count, count + 1]
    change(some, "b")
    change(some[::2], "c", gone=True)
    change([-1, -2], "d")
    expected |= {key: f"b{key}" for key in some} | {-1: "d-1", -2: "d-2"}
    expected = {key: text for key, text in expected.items() if key not in some[::2]}
    assert texts() == expected
    assert held.to_pydict() == before
    assert len(image) == len(expected)


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.dictionary(pa.int32(), pa.string()), pa.list_(pa.float32(), 8), pa.string_view()),
        *(
            pa.struct([("a", pa.list_(pa.float32(), 2))]),
            pa.dense_union([pa.field("a", pa.int8())]),
        ),
        pa.run_end_encoded(pa.int32(), pa.int64()),
    ],
    ids=str,
)
def test_columns_of_other_types_are_not_kept(kind: pa.DataType) -> None:
    image = LiveImage(pa.schema([pa.field("k", pa.int64()), pa.field("v", kind)]), 0, None)
    assert not image.admit(1)
    assert not image.has(1)


def test_what_does_not_fit_is_refused_before_anything_changes() -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.int32())])
    image = LiveImage(schema, 0, "before")
    batch = pa.record_batch([pa.array([1]), pa.array([2], pa.int32())], schema=schema)
    keys = batch.column(0)
    longer, other = pa.array([1, 2]), pa.record_batch([keys, keys], ["k", "v"])
    wrong: list[tuple[Any, Any, Any]] = [
        *((batch, longer, None), (batch, keys, pa.array([True, False])), (batch, keys, keys)),
        *((other, keys, None), (batch.select(["k"]), keys, None), (batch, pa.array([1.0]), None)),
        *((batch, pa.array(["1"]), None), (batch, pa.array([1], pa.int32()), None)),
    ]
    for change in wrong:
        with pytest.raises((ValueError, RuntimeError)):
            image.apply([change], "after")
        assert (len(image), image.state) == (0, "before")
    for column in (2, 99):
        with pytest.raises(ValueError, match="no such column"):
            scanned(image, [column])
    image.apply([(batch, keys, None)], "after")
    assert image.scan("after", [1], None, [], None, 0) is None


def test_rows_are_made_of_keys_and_of_values_that_are_loaded() -> None:
    """In batches across chunks; the values of keys that have gone meanwhile are passed over."""
    count = 70_000
    key = pa.field("k", pa.int64(), nullable=False)
    schema = pa.schema([key, pa.field("a", pa.string()), pa.field("b", pa.int8())])
    image = LiveImage(schema, 0, "built")
    keys = pa.array(range(count))
    image.insert(keys)
    assert len(image) == count
    assert image.admit(1)
    assert image.admit(2)
    assert not image.has(1)

    def change(keys: list[int], text: str, gone: bool = False) -> None:
        columns = [
            pa.array(keys),
            pa.array([text] * len(keys)),
            pa.array([1] * len(keys), pa.int8()),
        ]
        batch = pa.record_batch(columns, schema=schema)
        image.apply([(batch, batch.column(0), pa.array([gone] * len(keys)))], text)

    change([5], "gone", gone=True)
    change([-1, 7], "new")
    for start in range(0, count, 30_000):
        part = keys.slice(start, 30_000)
        small = pa.array([key % 100 for key in part.to_pylist()], pa.int8())
        values = pa.record_batch([small, part.cast(pa.string())], ["b", "a"])
        image.load([2, 1], values, part)
    image.loaded([1, 2])
    rows = zip(*scanned(image, [0, 2, 1]).to_pydict().values(), strict=True)
    expected = {key: (key % 100, str(key)) for key in range(count) if key != 5}
    expected |= {-1: (1, "new"), 7: (1, "new")}
    assert {key: (small, text) for key, small, text in rows} == expected
    assert image.state == "new"
    of_keys, of_columns, _ = image.nbytes
    assert of_keys >= 8 * count
    assert of_columns.keys() == {1, 2}
    assert of_columns[1] > of_columns[2] >= count
