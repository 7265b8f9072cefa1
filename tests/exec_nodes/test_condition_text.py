"""How plans print conditions."""

from __future__ import annotations

import pytest

from exec_nodes.condition_text import without_parentheses


@pytest.mark.parametrize(
    ("sql", "printed"),
    [
        ("(val > 5)", "val > 5"),
        ("((val > 5))", "val > 5"),
        ("(a = 1) OR (b = 2)", "(a = 1) OR (b = 2)"),
        ("((a = 1) OR (b = 2))", "(a = 1) OR (b = 2)"),
        ("(s = ')')", "s = ')'"),
        ("(s = 'it''s (')", "s = 'it''s ('"),
        ('("a)" = 1)', '"a)" = 1'),
        ("(a", "(a"),
        ("", ""),
    ],
)
def test_parentheses_around_the_whole_are_left_out(sql: str, printed: str) -> None:
    assert without_parentheses(sql) == printed
