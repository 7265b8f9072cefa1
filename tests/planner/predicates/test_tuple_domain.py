"""Boxes say something only about columns that they were asked for, of types that they can tell."""

from __future__ import annotations

import pyarrow as pa

from planner.predicates.domain import Domain
from planner.predicates.expr import And, Compare, Distinct, In, Literal, Not, Operand, Predicate
from planner.predicates.tuple_domain import tuple_domains
from tests.each import each
from tests.planner.predicates.said import Said

INEXACT = [
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.duration("us"),
    pa.time32("s"),
    pa.time64("us"),
    pa.list_(pa.int8()),
    pa.list_(pa.float32(), 2),
    pa.struct([("a", pa.int8())]),
    pa.dictionary(pa.int8(), pa.int64()),
    pa.dictionary(pa.int8(), pa.string()),
    pa.null(),
]
X = Operand("x")
LITERALS = [
    Literal(pa.float64(), "15.5"),
    Literal(pa.float32(), "0.10000000149011612"),
    Literal(pa.float64(), "1e300"),
    Literal(pa.int64(), 300),
    Literal(pa.duration("us"), 3),
    Literal(pa.time64("us"), 3),
    Literal(pa.string(), "a"),
    Literal(pa.bool_(), True),
    Literal(pa.timestamp("us"), 1_704_067_200_000_000),
]


def _conditions(literal: Literal) -> list[Predicate]:
    low, high = Compare(X, ">", literal), Compare(X, "<", literal)
    return [
        *(Compare(X, op, literal) for op in ("=", "<>", "<", "<=", ">", ">=")),
        Compare(Operand("x", (literal.type,)), "=", literal),
        In(X, literal.type, (literal.value,)),
        In(X, literal.type, (literal.value, None)),
        And((low, high)),
        Not(And((low, high))),
        Distinct(X, literal),
        Not(Distinct(X, literal)),
    ]


@each("kind", INEXACT)
@each("literal", LITERALS)
def test_types_whose_values_are_no_points_allow_any_row(
    kind: pa.DataType, literal: Literal
) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", kind)])
    for condition in _conditions(literal):
        assert tuple_domains(condition, schema, ["id", "x"]) == ({},)


MISMATCHED = [
    (pa.int64(), Literal(pa.string(), "3")),
    (pa.int64(), Literal(pa.float64(), "3.0")),
    (pa.int64(), Literal(pa.int32(), 3)),
    (pa.int64(), Literal(pa.timestamp("us"), 3)),
    (pa.string(), Literal(pa.int64(), 3)),
    (pa.string(), Literal(pa.binary(), b"3")),
    (pa.binary(), Literal(pa.string(), "3")),
    (pa.bool_(), Literal(pa.int64(), 1)),
    (pa.date32(), Literal(pa.timestamp("us"), 3)),
    (pa.timestamp("us"), Literal(pa.timestamp("ms"), 3)),
    (pa.timestamp("us"), Literal(pa.timestamp("us", "UTC"), 3)),
    (pa.timestamp("us"), Literal(pa.date32(), 3)),
    (pa.decimal128(10, 2), Literal(pa.decimal128(10, 3), 3)),
    (pa.decimal128(10, 2), Literal(pa.float64(), "3.0")),
]


@each("kind, literal", MISMATCHED)
def test_literals_of_another_type_than_the_operand_allow_any_row(
    kind: pa.DataType, literal: Literal
) -> None:
    """DataFusion casts the one or the other: without a cast nobody knows what it compares."""
    schema = pa.schema([("x", kind)])
    for condition in (Compare(X, "=", literal), In(X, literal.type, (literal.value,))):
        assert tuple_domains(condition, schema, ["x"]) == ({},)


WIDENED = [
    (pa.int32(), (pa.int64(),), 3, 3),
    (pa.int32(), (pa.float64(),), "3.0", 3),
    (pa.int64(), (pa.decimal128(22, 2),), 300, 3),
    (pa.decimal128(10, 2), (pa.decimal128(20, 3),), 1500, 150),
    (pa.date32(), (pa.timestamp("s"),), 86_400, 1),
    (pa.timestamp("ms"), (pa.timestamp("us"),), 5000, 5),
    (pa.timestamp("ms", "UTC"), (pa.timestamp("us", "Europe/Rome"),), 5000, 5),
    (pa.string(), (pa.large_string(), pa.string_view()), "a", "a"),
    (pa.binary(2), (pa.binary(),), b"ab", b"ab"),
]


@each("kind, casts, value, point", WIDENED)
def test_casts_that_keep_every_value_are_seen_through(
    kind: pa.DataType, casts: tuple[pa.DataType, ...], value: object, point: object
) -> None:
    condition = Compare(Operand("x", casts), "=", Literal(casts[-1], value))  # type: ignore[arg-type]
    wanted = {"x": Domain(frozenset((point,)))}
    assert tuple_domains(condition, pa.schema([("x", kind)]), ["x"]) == (wanted,)


DAY = 86_400 * 10**6
SPLIT: list[tuple[pa.DataType, Literal, list[int], list[int], list[int]]] = [
    (pa.int32(), Literal(pa.float64(), "2.0"), [1], [2], [3]),
    (pa.int32(), Literal(pa.float64(), "2.5"), [2], [], [3]),
    (pa.timestamp("us"), Literal(pa.date32(), 1), [DAY - 1], [DAY, 2 * DAY - 1], [2 * DAY]),
]


@each("kind, literal, below, equal, above", SPLIT)
def test_a_literal_splits_the_values_of_a_column(
    kind: pa.DataType, literal: Literal, below: list[int], equal: list[int], above: list[int]
) -> None:
    holding = {
        "=": equal,
        "<>": below + above,
        "<": below,
        ">": above,
        "<=": below + equal,
        ">=": equal + above,
    }
    for op, points in holding.items():
        condition = Compare(Operand("x", (literal.type,)), op, literal)
        domains = tuple_domains(condition, pa.schema([("x", kind)]), ["x"])
        values = [p for p in below + equal + above for d in domains if p in d["x"]]
        assert values == points, op


@each("op", ["=", "<>", "<", "<=", ">", ">="])
def test_a_moment_between_two_of_the_column_keeps_both(op: str) -> None:
    fine = pa.timestamp("ns")
    condition = Compare(Operand("x", (fine,)), op, Literal(fine, 1500))
    (domains,) = tuple_domains(condition, pa.schema([("x", pa.timestamp("us"))]), ["x"])
    expected = [*([0] if "<" in op else []), 1, 2, *([3] if ">" in op else [])]
    assert [moment for moment in range(4) if moment in domains["x"]] == expected


NARROWED = [
    (pa.int64(), (pa.float32(),), "3.0"),
    *((pa.int64(), (pa.float64(),), text) for text in ("NaN", "inf", "9007199254740992.0")),
    (pa.int64(), (pa.string(),), "3"),
    (pa.decimal128(10, 2), (pa.decimal128(10, 1),), 15),
    (pa.decimal128(10, 2), (pa.float64(),), "1.5"),
    (pa.decimal128(10, 2), (pa.int64(),), 1),
    (pa.timestamp("us"), (pa.timestamp("s"),), 5),
    (pa.timestamp("us", "UTC"), (pa.timestamp("us"),), 5),
    (pa.timestamp("us"), (pa.timestamp("us", "Europe/Rome"),), 5),
    (pa.timestamp("us", "UTC"), (pa.date32(),), 5),
    (pa.timestamp("us"), (pa.timestamp("ms"), pa.date32()), 5),
    (pa.string(), (pa.binary(),), b"a"),
    (pa.bool_(), (pa.int64(),), 1),
    (pa.date32(), (pa.timestamp("us", "UTC"),), 5),
]


@each("kind, casts, value", NARROWED)
def test_casts_that_change_values_allow_any_row(
    kind: pa.DataType, casts: tuple[pa.DataType, ...], value: object
) -> None:
    for op in ("=", "<>", "<", ">="):
        condition = Compare(Operand("x", casts), op, Literal(casts[-1], value))  # type: ignore[arg-type]
        assert tuple_domains(condition, pa.schema([("x", kind)]), ["x"]) == ({},)


def test_conditions_on_other_columns_leave_the_boxes_of_the_wanted_ones() -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.int64())])
    said, wanted = Said(schema), {"id": Domain(frozenset((1,)))}
    assert tuple_domains(And(said("id = 1 AND x > 3 AND x < 3")), schema, ["id"]) == (wanted,)
    assert tuple_domains(And(said("id = 1 OR x = 3")), schema, ["id"]) == ({},)
    assert tuple_domains(And(said("x > 3 AND x < 3")), schema, ["id"]) == ({},)
    one, two = (Compare(Operand("id"), "=", Literal(pa.int64(), n)) for n in (1, 2))
    assert tuple_domains(And((one, two)), schema, ["id"]) == ()
