"""The arguments of a table function: literals of SQL, as Python values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from memwal_sql.errors import InvalidCallError

if TYPE_CHECKING:
    from datafusion import Expr


def literal(argument: Expr, what: str) -> Any:
    """The value of one argument. Raises InvalidCallError unless it is a literal.

    DataFusion has computed `1 + 1` and `make_array(1.0)` by then, but not columns, subqueries and
    parameters that have no value.
    """
    try:
        scalar = argument.python_value()
    except TypeError as error:
        raise InvalidCallError(
            f"{what} must be a literal, not {argument.canonical_name()}: put names into single "
            "quotes; table.vector_search, table.full_text_search and table.hybrid_search take "
            "values from Python as they are"
        ) from error
    return scalar.as_py() if isinstance(scalar, pa.Scalar) else scalar


def name_literal(argument: Expr, what: str) -> str:
    """The value of an argument that is a name."""
    value = literal(argument, what)
    if not isinstance(value, str):
        raise InvalidCallError(f"{what} must be a name in single quotes, not {value!r}")
    return value


def options_literal(argument: Expr) -> Mapping[str, Any]:
    """The options: a struct `{nprobes: 20}`, a map, a JSON object as text, or NULL for none."""
    value = literal(argument, "the options")
    if value is None:
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise InvalidCallError(f"the options {value!r} are no JSON object: {error}") from error
    if isinstance(value, list):  # a map comes as pairs
        value = dict(value)
    if not isinstance(value, Mapping):
        raise InvalidCallError(
            f"the options {value!r} must be a struct, such as {{nprobes: 20}}, or a JSON object"
        )
    return value
