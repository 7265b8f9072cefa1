"""New rows of an upsert have the defaults of columns that they lack, of every type."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

import memwal_sql as mw
from tests.each import each

COLUMNS = pa.schema({"id": pa.int64(), "n": pa.int64()})
SET = {"n": "t.n + s.n"}

# A type, and the default as it is given and as it is read.
DEFAULTS: list[tuple[pa.DataType, Any, Any]] = [
    (pa.json_(), '{"d": 1}', '{"d":1}'),
    (pa.uuid(), UUID(int=7), UUID(int=7)),
    (pa.bool8(), True, True),
    (pa.bool_(), True, True),
    (pa.string(), "a", "a"),
    (pa.binary(), b"a", b"a"),
    (pa.dictionary(pa.int32(), pa.string()), "a", "a"),
    (pa.date32(), date(2026, 1, 31), date(2026, 1, 31)),
    (pa.timestamp("us", "UTC"), datetime(2026, 1, 31, tzinfo=UTC), "2026-01-31 00:00:00+00:00"),
    (pa.date32(), "2026-01-31", date(2026, 1, 31)),
    (pa.timestamp("ms"), "2026-01-31T12:30:00", datetime(2026, 1, 31, 12, 30)),
    *((kind, "12:30", time(12, 30)) for kind in (pa.time32("s"), pa.time32("ms"))),
    *((kind, "12:30:00", time(12, 30)) for kind in (pa.time64("us"), pa.time64("ns"))),
    (pa.time64("us"), time(1, 2, 3, 4), time(1, 2, 3, 4)),
    (pa.decimal128(5, 2), "1.5", Decimal("1.50")),
    (pa.float16(), 1.5, 1.5),
]


def calls(table: mw.Table) -> list[Callable[[list[dict[str, int]]], object]]:
    def plain(rows: list[dict[str, int]]) -> None:
        with table.writer() as writer:
            writer.upsert(rows)

    def conditional(rows: list[dict[str, int]]) -> None:
        with table.writer() as writer:
            writer.upsert(rows, when="t.n <= s.n")

    def setting(rows: list[dict[str, int]]) -> None:
        with table.writer() as writer:
            writer.upsert(rows, set=SET)

    def in_transaction(rows: list[dict[str, int]]) -> None:
        with mw.transaction(table) as tx:
            tx.upsert(table, rows)

    return [plain, conditional, setting, in_transaction]


@each("kind, default, read", DEFAULTS)
def test_new_rows_have_the_default_and_existing_ones_keep_their_value(
    uri: str, kind: pa.DataType, default: Any, read: Any
) -> None:
    table = mw.create_table(uri, COLUMNS.append(pa.field("v", kind)), "id")
    with table.writer() as writer:
        writer.upsert([{"id": 0, "n": 0, "v": None}])
    table.set_default("v", default)
    for number, call in enumerate(calls(table), 1):
        call([{"id": 0, "n": 1}, {"id": number, "n": number}])
    values = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
    assert values.pop(0) is None
    assert sorted(values) == [1, 2, 3, 4]
    for value in values.values():
        assert str(value) == str(read) if isinstance(value, datetime) else value == read
