"""Region fields as text: `bucket(id, 16)`, `identity(carrier)`, `manual`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memwal_sql.errors import InvalidCallError
from memwal_sql.state.enable import Regions
from planner.regions import factories

_FACTORIES: Mapping[str, Callable[..., Any]] = {
    name: getattr(factories, name)
    for name in (
        "bucket",
        "day",
        "expression",
        "hour",
        "identity",
        "lance_bucket",
        "month",
        "multi_bucket",
        "truncate",
        "unsharded",
        "year",
    )
}


def parse_regions(texts: Sequence[str]) -> Regions | None:
    """The regions that texts ask for; None for no text. Raises InvalidCallError naming one."""
    if list(texts) == ["manual"]:
        return factories.manual()
    return [_field(text) for text in texts] or None


def _field(text: str) -> Any:
    try:
        call = ast.parse(text, mode="eval").body
        if isinstance(call, ast.Name):
            call = ast.Call(call, [], [])
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("it is no call")
        arguments = [_value(one) for one in call.args]
        named = {str(one.arg): _value(one.value) for one in call.keywords}
        return _FACTORIES[call.func.id](*arguments, **named)
    except InvalidCallError:
        raise
    except (SyntaxError, ValueError, KeyError, TypeError) as error:
        raise InvalidCallError(
            f"--region-by {text!r}: {error}; write such as 'bucket(id, 16)', one of "
            f"{sorted(_FACTORIES)}, or manual"
        ) from None


def _value(node: ast.expr) -> Any:
    """A column's name stands for itself."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(one) for one in node.elts]
    return ast.literal_eval(node)
