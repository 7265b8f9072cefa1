"""Searches as table functions of SQL.

    SELECT id, _distance FROM vector_search('events', 'embedding', [0.1, 0.2], 10, {nprobes: 20})
    WHERE lang = 'en'

A function finds its table by the name under which `register` registered it in the same session.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from datafusion import SessionContext, udtf

from memwal_native import MountedTable, remember
from memwal_sql.errors import InvalidCallError, MemWalError
from memwal_sql.search.options import DEFAULT_K
from memwal_sql.search.request import Search, full_text_search, hybrid_search, vector_search
from memwal_sql.session.registered import Registered
from memwal_sql.session.search_provider import SearchProvider

if TYPE_CHECKING:
    from datafusion import Expr

MakeSearch = Callable[[pa.Schema, Sequence["Expr"], Any, Mapping[str, Any]], Search]
FindTable = Callable[[str, SessionContext], Registered]


@dataclass(frozen=True)
class _Function:
    """A table function: its arguments between the table and `k`, and its search."""

    names: tuple[str, ...]
    arguments: tuple[str, ...]
    search: MakeSearch


def _vector(
    schema: pa.Schema, arguments: Sequence[Expr], k: Any, options: Mapping[str, Any]
) -> Search:
    column = name_literal(arguments[0], "the vector column")
    return vector_search(schema, column, literal(arguments[1], "the query vector"), k, options)


def _text(
    schema: pa.Schema, arguments: Sequence[Expr], k: Any, options: Mapping[str, Any]
) -> Search:
    columns = literal(arguments[0], "the text column")
    return full_text_search(schema, columns, literal(arguments[1], "the query text"), k, options)


def _hybrid(
    schema: pa.Schema, arguments: Sequence[Expr], k: Any, options: Mapping[str, Any]
) -> Search:
    return hybrid_search(
        schema,
        name_literal(arguments[0], "the vector column"),
        literal(arguments[1], "the query vector"),
        literal(arguments[2], "the text column"),
        literal(arguments[3], "the query text"),
        k,
        options,
    )


FUNCTIONS = (
    _Function(("vector_search", "lance_vector_search"), ("column", "vector"), _vector),
    _Function(("full_text_search", "lance_fts"), ("column", "query"), _text),
    _Function(
        ("hybrid_search", "lance_hybrid_search"),
        ("vector_column", "vector", "text_column", "query"),
        _hybrid,
    ),
)


def register_table_functions(ctx: SessionContext, find: FindTable) -> None:
    """Register the searches in a session; `find` gives the table that one names."""
    for function in FUNCTIONS:
        for name in function.names:
            ctx.register_udtf(udtf(partial(_call, find, name, function), name, with_session=True))


def _call(
    find: FindTable, name: str, function: _Function, *arguments: Expr, session: SessionContext
) -> MountedTable:
    """Called by DataFusion when it plans `name(...)` in `session`."""
    try:
        return MountedTable(_provider(find, name, function, arguments, session))
    except MemWalError as error:
        remember(error)
        raise


def _provider(
    find: FindTable,
    name: str,
    function: _Function,
    arguments: Sequence[Expr],
    session: SessionContext,
) -> SearchProvider:
    least = 1 + len(function.arguments)
    if not least <= len(arguments) <= least + 2:
        raise InvalidCallError(
            f"{name} takes (table, {', '.join(function.arguments)}, k, options), of which the "
            f"last two may be left out; {len(arguments)} arguments are given"
        )
    registration = find(name_literal(arguments[0], "the table"), session)
    k = literal(arguments[least], "k") if len(arguments) > least else DEFAULT_K
    options = options_literal(arguments[least + 1]) if len(arguments) > least + 1 else {}
    schema = registration.seen
    search = function.search(schema, arguments[1:least], k, options)
    return SearchProvider(name, registration.table, schema, search, registration.consistency)


def literal(argument: Expr, what: str) -> Any:
    """The value of one argument. Raises InvalidCallError unless it is a literal.

    DataFusion has computed `1 + 1` and `make_array(1.0)` by then, but not columns, subqueries and
    parameters without a value.
    """
    try:
        scalar = argument.python_value()
    except TypeError as error:
        raise InvalidCallError(
            f"{what} must be a literal, not {argument.canonical_name()}: put names into single "
            "quotes; table.vector_search, table.full_text_search and table.hybrid_search take "
            "Python values"
        ) from error
    try:
        return scalar.as_py() if isinstance(scalar, pa.Scalar) else scalar
    except (ValueError, OverflowError) as error:
        raise InvalidCallError(f"{what} can't be read: {error}") from error


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
            value = json.loads(value, object_pairs_hook=_once)
        except MemWalError:
            raise
        except ValueError as error:
            raise InvalidCallError(
                f"the options {value!r} are not a JSON object: {error}"
            ) from error
    if isinstance(value, list) and all(isinstance(pair, tuple) for pair in value):
        value = dict(value)  # a map, given as pairs
    if not isinstance(value, Mapping):
        raise InvalidCallError(
            f"the options {value!r} must be a struct, such as {{nprobes: 20}}, or a JSON object"
        )
    return value


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises InvalidCallError for a repeated name."""
    named = dict(pairs)
    if len(named) < len(pairs):
        twice = next(name for name, _ in pairs if [first for first, _ in pairs].count(name) > 1)
        raise InvalidCallError(f"the options name {twice!r} twice")
    return named
