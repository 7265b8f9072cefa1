"""Filters become the predicate that DataFusion means by them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from planner.predicates.expr import (
    And,
    Call,
    Compare,
    Distinct,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operand,
    Or,
    Other,
    Predicate,
    Truth,
    Value,
)
from tests.each import each
from tests.planner.predicates.said import Said

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.int32()),
        ("ID", pa.int8()),
        ("s", pa.string()),
        ('a"b', pa.string()),
        ('a""b', pa.string()),
        ("b", pa.binary()),
        ("fb", pa.binary(2)),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us")),
        ("ns", pa.timestamp("ns", "Europe/Rome")),
        ("dec", pa.decimal128(10, 2)),
        ("big", pa.decimal256(60, 3)),
        ("f", pa.float64()),
        ("f32", pa.float32()),
        ("bo", pa.bool_()),
        ("u", pa.uint64()),
        ("st", pa.struct([("id", pa.int64())])),
    ]
)
SAID = Said(SCHEMA)
ID, S, BO = Operand("id"), Operand("s"), Operand("bo")
DAY = 86_400 * 10**6


def _number(value: int) -> Literal:
    return Literal(pa.int64(), value)


def _text(value: str) -> Literal:
    return Literal(pa.string(), value)


def _is(column: str, value: Value) -> Compare:
    return Compare(Operand(column), "=", Literal(SCHEMA.field(column).type, value))


THREE = Compare(ID, "=", _number(3))


@each(
    "sql, expected",
    [
        ("id = 3", THREE),
        ("t.id = 3", THREE),
        ("datafusion.public.t.id = 3", THREE),
        ("3 = id", THREE),
        ("3 < id", Compare(ID, ">", _number(3))),
        ('"ID" = 3', _is("ID", 3)),
        ("v = 3", _is("v", 3)),
        ("CAST(v AS BIGINT) = 3", _is("v", 3)),
        ("u = 18446744073709551615", _is("u", 2**64 - 1)),
        ("s = 'it''s'", Compare(S, "=", _text("it's"))),
        ("s = 'a''''b'", Compare(S, "=", _text("a''b"))),
        ("s = '\\'' OR id = 3) --'", Compare(S, "=", _text("\\' OR id = 3) --"))),
        ("s = 'a\\b'", Compare(S, "=", _text("a\\b"))),
        ("s = 'a\0b'", Compare(S, "=", _text("a\0b"))),
        ('"a""b" = \'x\'', _is('a"b', "x")),
        ('"a""""b" = \'x\'', _is('a""b', "x")),
        ("b = X'6162'", _is("b", b"ab")),
        ("fb = X'6162'", _is("fb", b"ab")),
        ("d = DATE '1970-01-03'", _is("d", 2)),
        ("ts = TIMESTAMP '1970-01-02'", _is("ts", DAY)),
        ("ns = '1970-01-01T01:00:00.000000001+01:00'", _is("ns", 1)),
        ('"dec" = 1.5', _is("dec", 150)),
        ('"dec" = -1.55', _is("dec", -155)),
        ("big = arrow_cast('12345678901234567890123456789012345678901234567890.125', "
         "'Decimal256(60, 3)')",
         _is("big", 12345678901234567890123456789012345678901234567890125)),
        ("f = 1.5", _is("f", "1.5")),
        ("f = -0.0", _is("f", "-0.0")),
        ("f = 0.0", _is("f", "0.0")),
        ("f = 'NaN'", _is("f", "NaN")),
        ("f = 1e300", _is("f", "1e300")),
        ("f32 = arrow_cast(0.1, 'Float32')", _is("f32", "0.10000000149011612")),
        ("id IN (1, 2, 3, 4)", In(ID, pa.int64(), (1, 2, 3, 4))),
        ("id NOT IN (1, 2, 3, 4)", Not(In(ID, pa.int64(), (1, 2, 3, 4)))),
        ("id IN (1, 2, 3, NULL)", In(ID, pa.int64(), (1, 2, 3, None))),
        ("s IS NULL", IsNull(S)),
        ("s IS NOT NULL", Not(IsNull(S))),
        ("s LIKE 'a%b'", Like(S, "a%b", False)),
        ("ends_with(s, 'a')", Call("ends_with", S, _text("a"))),
        ("s NOT LIKE 'a%b'", Not(Like(S, "a%b", False))),
        ("s NOT ILIKE 'a%b'", Not(Like(S, "a%b", True))),
        ("bo", Compare(BO, "=", Literal(pa.bool_(), True))),
        ("NOT bo", Not(Compare(BO, "=", Literal(pa.bool_(), True)))),
        ("bo IS NOT TRUE", Not(Truth(Compare(BO, "=", Literal(pa.bool_(), True)), True))),
        ("bo IS FALSE", Truth(Compare(BO, "=", Literal(pa.bool_(), True)), False)),
        ("id IS DISTINCT FROM 3", Distinct(ID, _number(3))),
        ("id IS NOT DISTINCT FROM 3", Not(Distinct(ID, _number(3)))),
        ("id = 3 OR bo", Or((THREE, Compare(BO, "=", Literal(pa.bool_(), True))))),
        ("(bo OR id = 3) OR s IS NULL",
         Or((Compare(BO, "=", Literal(pa.bool_(), True)), THREE, IsNull(S)))),
    ],
)  # fmt: skip
def test_a_filter_is_read_as_it_is_meant(sql: str, expected: Predicate) -> None:
    assert SAID(sql) == (expected,)


def test_casts_are_kept_with_their_types() -> None:
    (found,) = SAID("CAST(id AS DOUBLE) < 2.5")
    cast = Operand("id", (pa.float64(),))
    assert found == Compare(cast, "<", Literal(pa.float64(), "2.5"))
    (found,) = SAID("arrow_cast(arrow_cast(ts, 'Timestamp(s)'), 'Date32') IS NULL")
    assert found == IsNull(Operand("ts", (pa.timestamp("s"), pa.date32())))


def test_each_conjunct_stands_for_itself() -> None:
    assert SAID("id BETWEEN 1 AND 2 AND s = 'x'") == (
        Compare(ID, ">=", _number(1)),
        Compare(ID, "<=", _number(2)),
        Compare(S, "=", _text("x")),
    )


@each(
    "sql, columns",
    [
        ("TRY_CAST(s AS BIGINT) = id", ("id", "s")),
        ("lower(s) = 'x'", ("s",)),
        ("id = v", ("id", "v")),
        ("st['id'] = 3", ("st",)),
        ("id IN (1, 2, 3, v)", ("id", "v")),
        ("s LIKE \"a\"\"b\"", ('a"b', "s")),
        ("s ~ 'a.*b'", ("s",)),
        ("CASE s WHEN 'x' THEN id ELSE v END = 2", ("id", "s", "v")),
    ],
)  # fmt: skip
def test_other_conditions_tell_their_columns_alone(sql: str, columns: tuple[str, ...]) -> None:
    assert SAID(sql) == (Other(columns),)


def test_equal_trees_mean_the_same() -> None:
    """Caches go by them: in Python 0.0 == -0.0 and 1 == True."""
    texts = ["f = 0.0", "f = -0.0", "f = 1.0", "id = 1", "v = 1", "bo", "u = 1", "f = 'NaN'"]
    assert len({SAID(text) for text in texts}) == len(texts)
    assert SAID("f = 'NaN'") == SAID("f = 'NaN'")


def test_equal_filters_mean_the_same() -> None:
    """So that the plan of one may be taken for another."""
    texts = ["f = 0.0", "f = -0.0", "s = 'a''b'", "s = 'a''''b'", "id = 1", "v = 1", "s = 'a'"]
    found = {SAID.given(text)[0]: text for text in [*texts, *texts]}
    assert len(found) == len(texts)
    (one,), (same,) = SAID.given("s = 'a''b'"), SAID.given("t.s = 'a''b'")
    assert one == same and hash(one) == hash(same) and one != "s = 'a''b'"


@pytest.mark.slow
def test_a_chain_of_hundreds_is_read() -> None:
    (chain,) = SAID(" OR ".join(f"(id = {n} AND v = {n})" for n in range(600)))
    assert isinstance(chain, Or) and len(chain.arguments) == 600
    assert isinstance(chain.arguments[-1], And)
