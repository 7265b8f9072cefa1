"""Conditions as plans print them."""

from __future__ import annotations


def without_parentheses(sql: str) -> str:
    """`sql` without the parentheses that enclose all of it."""
    while sql.startswith("(") and _closes_at_end(sql):
        sql = sql[1:-1]
    return sql


def _closes_at_end(sql: str) -> bool:
    """Whether the parenthesis that `sql` starts with is closed by its last character."""
    depth, quote = 0, ""
    for place, character in enumerate(sql):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
            if depth == 0:
                return place == len(sql) - 1
    return False
