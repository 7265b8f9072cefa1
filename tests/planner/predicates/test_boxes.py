"""Boxes say something only about columns that they were asked for, of types that they can tell."""

from __future__ import annotations

import pyarrow as pa
import pytest

from planner.predicates.boxes import boxes
from planner.predicates.domain import Domain
from planner.predicates.parsing import parse

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
CONDITIONS = [
    "x = 15.5",
    "x = CAST(15.5 AS FLOAT)",
    "x = 0.10000000149011612",
    "CAST(x AS DOUBLE) = 15.5",
    "x = 300",
    "x = -1e10",
    "x <> 3",
    "x IN (15.5)",
    "x IN (300, 15.5, NULL)",
    "x > 15.2 AND x < 15.8",
    "x BETWEEN 24.1 AND 24.9",
    "x > 24 AND x < 25",
    "NOT (x <= 24 OR x >= 25)",
    "x > 1e300",
    "x IS DISTINCT FROM 15.5",
    "x IS NOT DISTINCT FROM 15.5",
    "x = 'a'",
    "x = true",
    "x > TIMESTAMP '2024-01-01 00:00:00'",
]


@pytest.mark.parametrize("kind", INEXACT, ids=str)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_types_whose_values_are_no_points_allow_any_row(kind: pa.DataType, condition: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", kind)])
    assert boxes(parse(condition), schema, ["id", "x"]) == ({},)


def test_conditions_on_other_columns_leave_the_boxes_of_the_wanted_ones() -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.int64())])
    wanted = {"id": Domain(frozenset((1,)))}
    assert boxes(parse("id = 1 AND x > 3 AND x < 3"), schema, ["id"]) == (wanted,)
    assert boxes(parse("id = 1 OR x = 3"), schema, ["id"]) == ({},)
    assert boxes(parse("x > 3 AND x < 3"), schema, ["id"]) == ({},)
    assert boxes(parse("id = 1 AND id = 2"), schema, ["id"]) == ()
    assert boxes(parse("id = 1 AND false"), schema, ["id"]) == ()


@pytest.mark.parametrize("sql", ["st.id = 3", "st.a.id IN (3, 4)", "st.id IS NULL", "t.st.id > 3"])
def test_a_field_of_a_struct_is_no_column_of_the_same_name(sql: str) -> None:
    """DataFusion's unparser writes `st['id']` like a qualified column."""
    schema = pa.schema([("id", pa.int64()), ("st", pa.struct([("id", pa.int64())]))])
    assert boxes(parse(sql), schema, ["id"]) == ({},)
