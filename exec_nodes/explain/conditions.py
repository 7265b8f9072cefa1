"""How plans print conditions."""

from __future__ import annotations

from collections.abc import Sequence

from exec_nodes.base.columns import Filter


def conditions(filters: Sequence[Filter]) -> str:
    """`val > 5, id < 9`: as in the specification, without DataFusion's outer parentheses."""
    return ", ".join(_bare(condition.text) for condition in filters)


def _bare(text: str) -> str:
    while text.startswith("(") and _closing(text) == len(text) - 1:
        text = text[1:-1]
    return text


def _closing(text: str) -> int:
    """Where the parenthesis that `text` opens with is closed; -1 if it is not."""
    depth, quote = 0, ""
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"`":
            quote = letter
        else:
            depth += (letter == "(") - (letter == ")")
            if depth == 0:
                return at
    return -1
