"""Labels print conditions as the specification does."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from exec_nodes.base.columns import Filter
from exec_nodes.explain.labels import conditions
from tests.each import each


def _all(batch: pa.RecordBatch) -> pa.BooleanArray:
    return pa.array([True] * batch.num_rows)


EVALUATE: Callable[[pa.RecordBatch], pa.BooleanArray] = _all


@each(
    "sql, shown",
    [
        ("(val > 5)", "val > 5"),
        ("((val > 5))", "val > 5"),
        ("val > 5", "val > 5"),
        ("(a = 1) OR (b = 2)", "(a = 1) OR (b = 2)"),
        ("((a = 1) OR (b = 2))", "(a = 1) OR (b = 2)"),
        ("(txt = ')')", "txt = ')'"),
        ("(txt = '(') AND (b = 1)", "(txt = '(') AND (b = 1)"),
        ("(txt = 'it''s)')", "txt = 'it''s)'"),
        ("(txt = '\\'' OR 1)')", "txt = '\\'' OR 1)'"),
        ('("a"")" = 1)', '"a"")" = 1'),
    ],
)
def test_outer_parentheses_are_not_printed(sql: str, shown: str) -> None:
    assert conditions([Filter(sql, EVALUATE, ())]) == shown


def test_conditions_are_separated_by_commas() -> None:
    assert conditions([]) == ""
    assert (
        conditions([Filter("(a > 1)", EVALUATE, ()), Filter("b < 2", EVALUATE, ())])
        == "a > 1, b < 2"
    )
