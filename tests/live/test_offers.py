"""Conditions that one path is offered and the other one scans with, for keys of every type."""

from __future__ import annotations

import datetime
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_native import void_questions
from memwal_sql.read.live.settings import Live
from memwal_sql.session.provider import TableProvider
from tests.each import each

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<=": operator.le,
    ">": operator.gt,
}


def _integers(bits: int, is_signed: bool) -> list[int]:
    least = -(2 ** (bits - 1)) if is_signed else 0
    return [least, 1, least + 2**bits - 1]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# Of each type the extreme values, and how SQL writes one.
KINDS: list[tuple[pa.DataType, Sequence[Any], Callable[[Any], str]]] = [
    *((pa.type_for_alias(f"int{bits}"), _integers(bits, True), str) for bits in (8, 16, 32, 64)),
    *((pa.type_for_alias(f"uint{bits}"), _integers(bits, False), str) for bits in (8, 16, 32, 64)),
    (pa.int64(), [-(2**63), -(2**63) + 1, 0], str),
    (pa.uint64(), [2**63 - 1, 2**63, 2**63 + 1], str),
    (pa.string(), ["", "é", "Z'"], _quoted),
    (pa.binary(), [b"", b"\0", b"\xff"], lambda value: f"X'{value.hex()}'"),
    (pa.bool_(), [False, True], lambda value: str(value).lower()),
    (
        pa.date32(),
        [datetime.date(1, 1, 1), datetime.date(1970, 1, 1), datetime.date(9999, 12, 31)],
        lambda value: f"DATE '{value}'",
    ),
    (
        pa.timestamp("us"),
        [datetime.datetime(1677, 9, 22), datetime.datetime(2262, 4, 11, 1, 1, 1, 5)],
        lambda value: f"TIMESTAMP '{value}'",
    ),
    (
        pa.decimal128(10, 2),
        [Decimal("-99999999.99"), Decimal("0.00"), Decimal("99999999.99")],
        lambda value: f"CAST('{value}' AS DECIMAL(10,2))",
    ),
]


def _conditions(
    values: Sequence[Any], shown: Callable[[Any], str]
) -> Iterator[tuple[str, list[Any]]]:
    """Each with the values that meet it."""
    for (sign, meets), value in itertools.product(OPERATORS.items(), values):
        yield f"id {sign} {shown(value)}", [one for one in values if meets(one, value)]
    for some in itertools.combinations(values, 2):
        yield f"id IN ({', '.join(map(shown, some))}, NULL)", list(some)
    first, last = values[0], values[-1]
    yield f"id = {shown(first)} OR id = {shown(last)}", [first, last]
    yield f"NOT id = {shown(first)}", list(values[1:])


@each("case", range(len(KINDS)))
def test_a_condition_is_applied_whoever_is_offered_it(
    uri: str, monkeypatch: pytest.MonkeyPatch, case: int
) -> None:
    kind, values, shown = KINDS[case]
    schema = pa.schema([pa.field("id", kind, nullable=False), pa.field("v", pa.int64())])
    ctx, offered = mw.SessionContext(), list[object]()
    with Live.set(enabled=1, least_rows=0, waited=1):
        table = mw.create_table(uri, schema, "id")
        assert table.answers is not None
        mw.register(ctx, "t", table)
        with table.writer() as writer:
            writer.upsert(pa.table({"id": pa.array(values, kind), "v": [1] * len(values)}, schema))

        def look() -> None:
            """Leave new questions."""
            thread = Thread(target=lambda: ctx.sql("SELECT * FROM t").to_arrow_table())
            thread.start()
            thread.join()

        def found(condition: str) -> list[Any]:
            rows = ctx.sql(f"SELECT id FROM t WHERE {condition}").to_arrow_table()
            return sorted(rows["id"].to_pylist())

        look()
        look()
        offer = TableProvider.supports_filters_pushdown

        def offered_before_a_look(self: TableProvider, filters: Any) -> list[str]:
            answers = offer(self, filters)
            offered.append(answers)
            look()
            return answers

        monkeypatch.setattr(TableProvider, "supports_filters_pushdown", offered_before_a_look)
        unknown = Path(uri) / "_mem_wal" / "unknown"
        for condition, expected in _conditions(values, shown):
            before = table.answers.count
            assert found(condition) == sorted(expected), condition
            assert table.answers.count == before + 1
            assert not offered
            unknown.touch()  # for who looks, no region, but more than the look has found
            assert found(condition) == sorted(expected), condition
            assert table.answers.count == before + 1
            assert not offered
            unknown.unlink()
            void_questions()
            assert found(condition) == sorted(expected), condition
            if offered:
                assert table.answers.count > before + 1
            else:  # DataFusion knows what these are without a table
                assert pa.types.is_boolean(kind)
            offered.clear()
        monkeypatch.undo()
