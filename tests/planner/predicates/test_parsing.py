"""Filter texts become the predicate that DataFusion means by them."""

from __future__ import annotations

import time

import pytest

from planner.predicates.nodes import (
    And,
    Compare,
    Constant,
    Distinct,
    In,
    IsNull,
    Like,
    Not,
    Number,
    Operand,
    Or,
    Other,
    Predicate,
    Truth,
    Typed,
)
from planner.predicates.parsing import columns_of, parse

ID, S, BO = Operand("id"), Operand("s"), Operand("bo")
THREE = Compare(ID, "=", Number("3"))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("id = 3", THREE),
        ("(t.id = 3)", THREE),
        ('"vector_search()".id = 3', THREE),
        ("datafusion.public.t.id = 3", THREE),
        ("((id = 3))", THREE),
        ("3 = id", THREE),
        ("3 < id", Compare(ID, ">", Number("3"))),
        ("ID = 3", THREE),
        ('"ID" = 3', Compare(Operand("ID"), "=", Number("3"))),
        ('(t."a b" = \'x\')', Compare(Operand("a b"), "=", "x")),
        ("s = 'it''s'", Compare(S, "=", "it's")),
        ("s = 'a\\b'", Compare(S, "=", "a\\b")),
        ("s = ' AND id = 3'", Compare(S, "=", " AND id = 3")),
        ("id = -3.5", Compare(ID, "=", Number("-3.5"))),
        ("id > 1e10", Compare(ID, ">", Number("1e10"))),
        ("b = X'6162'", Compare(Operand("b"), "=", b"ab")),
        ("d = CAST('2024-01-01' AS DATE)", Compare(Operand("d"), "=", Typed("DATE", "2024-01-01"))),
        ("d = DATE '2024-01-01'", Compare(Operand("d"), "=", Typed("DATE", "2024-01-01"))),
        ("CAST(id AS BIGINT) = 3", Compare(Operand("id", ("BIGINT",)), "=", Number("3"))),
        ("id IN (1, 2)", In(ID, (Number("1"), Number("2")))),
        ("id IN (1, NULL)", In(ID, (Number("1"), None))),
        ("id NOT IN (1)", Not(In(ID, (Number("1"),)))),
        ("s IS NULL", IsNull(S)),
        ("s IS NOT NULL", Not(IsNull(S))),
        ("s LIKE 'a%'", Like(S, "a%", False)),
        ("s NOT LIKE 'a%'", Not(Like(S, "a%", False))),
        ("s NOT ILIKE 'a%'", Not(Like(S, "a%", True))),
        ("bo", Compare(BO, "=", True)),
        ("NOT bo", Not(Compare(BO, "=", True))),
        ("bo IS NOT TRUE", Not(Truth(Compare(BO, "=", True), True))),
        ("id IS DISTINCT FROM 3", Distinct(ID, Number("3"))),
        ("id IS NOT DISTINCT FROM 3", Not(Distinct(ID, Number("3")))),
        ("TRUE", Constant(True)),
        ("id = 3 OR NULL", Or((THREE, Constant(None)))),
        ("id = 3 AND bo", And((THREE, Compare(BO, "=", True)))),
        ("(bo OR id = 3) OR bo", Or((Compare(BO, "=", True), THREE, Compare(BO, "=", True)))),
    ],
)  # fmt: skip
def test_a_filter_is_read_as_it_is_meant(sql: str, expected: Predicate) -> None:
    assert parse(sql) == expected


def test_between_is_two_comparisons() -> None:
    low, high = Compare(ID, ">=", Number("1")), Compare(ID, "<=", Number("2"))
    assert parse("id BETWEEN 1 AND 2") == And((low, high))
    assert parse("id NOT BETWEEN 1 AND 2") == Not(And((low, high)))


@pytest.mark.parametrize(
    "sql",
    [
        "s LIKE 'a!%' ESCAPE '!'",
        "id BETWEEN SYMMETRIC 2 AND 1",
        "id IN (SELECT 1)",
        "id = ANY (ARRAY[1])",
        "TRY_CAST(s AS BIGINT) = 3",
        "lower(s) = 'x'",
        "id = v",
        "f = NaN",
        "s = E'\\n'",
        "id = 3 trailing",
        "((",
        "",
        "(" * 3000 + "id = 3" + ")" * 3000,
    ],
)
def test_other_conditions_say_nothing(sql: str) -> None:
    assert isinstance(parse(sql), Other)


def test_columns_are_found_in_any_condition() -> None:
    assert columns_of("id = 3 AND (lower(s) = 'x' OR v > 2)") == {"id", "s", "v"}
    assert columns_of("NOT (bo IS TRUE)") == {"bo"}
    assert columns_of("f = NaN") == {"f"}
    assert columns_of("TRUE") == set()
    assert columns_of("id IN (SELECT x FROM y)") is None
    assert columns_of("((") is None
    assert columns_of("st.id = 3") is None


def test_a_chain_of_thousands_is_read() -> None:
    chain = parse(" OR ".join(f"id = {n}" for n in range(3000)))
    assert isinstance(chain, Or) and len(chain.arguments) == 3000


def test_a_lookup_is_read_in_microseconds() -> None:
    start = time.perf_counter()
    for number in range(2000):
        parse(f"(id = {number + 10**6})")
    assert (time.perf_counter() - start) / 2000 < 150e-6
