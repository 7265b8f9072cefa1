"""Full-text queries as callers write them: a text, a JSON object or a tree.

The JSON form is an object with one key, in the words of `lance.query`:

    {"match": {"query": "write ahead log", "operator": "AND", "boost": 2, "fuzziness": 1,
               "max_expansions": 50, "prefix_length": 0, "minimum_should_match": 2}}
    {"phrase": {"query": "write ahead log", "slop": 1}}
    {"multi_match": {"query": "log", "columns": ["title", "body"], "boosts": [2, 1]}}
    {"combined_fields": {"query": "log", "columns": ["title", "body"], "boosts": [2, 1]}}
    {"boost": {"positive": {...}, "negative": {...}, "negative_boost": 0.5}}
    {"boolean": {"must": [...], "should": [...], "must_not": [...], "minimum_should_match": 1}}

`match` and `phrase` take a `column` too; without one the column of the call counts. A `fuzziness`
of "auto" (or null) depends on the length of each token; without one words are taken unchanged, as
in `lance.query` (Lance's JSON means "auto" then).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from lance.query import FullTextQuery

from exec_nodes.base.errors import InvalidCallError, UnsupportedError
from exec_nodes.text.query.tree import (
    Boolean,
    Boost,
    CombinedFields,
    Match,
    MultiMatch,
    Operator,
    Phrase,
    TextExpression,
    columns_of,
)

_DEEPEST: Final = 100
_FORMS: Final = {
    "MatchQuery": '{"match": {"query": ..., "column": ...}}',
    "PhraseQuery": '{"phrase": {"query": ..., "column": ...}}',
    "MultiMatchQuery": '{"multi_match": {"query": ..., "columns": [...]}}',
    "CombinedFieldsQuery": '{"combined_fields": {"query": ..., "columns": [...]}}',
    "BoostQuery": '{"boost": {"positive": {...}, "negative": {...}, "negative_boost": ...}}',
    "BooleanQuery": '{"boolean": {"must": [...], "should": [...], "must_not": [...]}}',
}
_TOO_DEEP: Final = (
    f"The full-text query is nested deeper than {_DEEPEST} levels: give more clauses on one level."
)


def parse_query(
    query: object,
    column: str | None,
    columns: Collection[str],
    options: Mapping[str, object] | None = None,
) -> TextExpression:
    """The tree of a query.

    Args:
        query: a text, which is a match of any of its tokens and has no operators; a string that
            begins with `{`, which is the JSON form; the same as a mapping; or a tree.
        column: the column of parts of the query that name none.
        columns: the table's text columns.
        options: for a text only: further keys of `match`.

    Raises InvalidCallError that names the key and the value, and the remedy, and UnsupportedError
    for an object of `lance.query`, which does not show its contents.
    """
    try:
        expression = _parse(query, column, options or {})
    except RecursionError as error:
        raise InvalidCallError(_TOO_DEEP) from error
    unknown = sorted(columns_of(expression) - set(columns))
    if unknown:
        raise InvalidCallError(
            f"{unknown[0]!r} is not a text column of the table; it has {sorted(columns)!r}."
        )
    return expression


def _parse(query: object, column: str | None, options: Mapping[str, object]) -> TextExpression:
    if isinstance(query, str) and not query.lstrip().startswith("{"):
        return _from_json({"match": {"query": query, **options}}, column)
    if options:
        raise InvalidCallError(
            f"{sorted(options)!r} can be given with a text only; put them into the parts of the "
            f"query that they are meant for."
        )
    if isinstance(query, TextExpression):
        return query
    if isinstance(query, FullTextQuery):
        raise UnsupportedError(
            f"a {type(query).__name__} of lance.query does not show its contents: give the JSON "
            f"form, such as {_FORMS.get(type(query).__name__, _FORMS['MatchQuery'])}."
        )
    if isinstance(query, str):
        return _from_json(_loaded(query), column)
    if isinstance(query, Mapping):
        return _from_json(query, column)
    raise InvalidCallError(
        f"The full-text query is {query!r}; give a string or a mapping in the JSON form."
    )


def _loaded(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidCallError(
            f"The full-text query begins with a brace but is not JSON ({error}): {text[:80]!r}. To "
            "search for this text as words, give plain=True."
        ) from error


def _from_json(form: object, column: str | None, depth: int = 0) -> TextExpression:
    if depth > _DEEPEST:
        raise InvalidCallError(_TOO_DEEP)
    if not isinstance(form, Mapping) or len(form) != 1:
        raise InvalidCallError(
            f"A part of a full-text query is {form!r}; give an object with one key of "
            f"{', '.join(_KINDS)}."
        )
    ((kind, body),) = form.items()
    if kind not in _KINDS:
        raise InvalidCallError(
            f"{kind!r} is not a kind of full-text query; give one of {', '.join(_KINDS)}."
        )
    if not isinstance(body, Mapping):
        raise InvalidCallError(f"What stands in {kind!r} is {body!r}; give an object.")
    node, required, optional = _KINDS[kind]
    missing = [key for key in required if key not in body]
    if missing:
        names = ", ".join(map(repr, body)) or "none"
        raise InvalidCallError(f"A {kind} query needs {missing[0]!r}; it has {names}.")
    unknown = [key for key in body if key not in required and key not in optional]
    if unknown:
        raise InvalidCallError(
            f"{unknown[0]!r} is not a key of a {kind} query; it takes "
            f"{', '.join((*required, *optional))}."
        )
    if "column" in optional and body.get("column") is None:
        body = {**body, "column": column}
    arguments = {
        _PARAMETERS.get((node, key), str(key)): _value(kind, key, value, column, depth)
        for key, value in body.items()
    }
    return node(**arguments)


def _value(kind: str, key: str, value: Any, column: str | None, depth: int) -> object:
    """A value of a JSON object as its node takes it; what a node checks itself is left to it."""

    def refuse(remedy: str) -> InvalidCallError:
        return InvalidCallError(f"{key} of a {kind} query is {value!r}; {remedy}.")

    match key:
        case "query" if not isinstance(value, str):
            raise refuse("give a string")
        case "column" if not isinstance(value, str):
            raise refuse("name a text column")
        case "fuzziness" if value == "auto":
            return None
        case "operator" if not isinstance(value, Operator):
            if not isinstance(value, str) or value.upper() not in Operator.__members__:
                raise refuse("give 'AND' or 'OR'")
            return Operator[value.upper()]
        case "columns":
            if not _is_list(value) or not all(isinstance(name, str) for name in value):
                raise refuse("give a list of names")
            return tuple(value)
        case "boosts" if value is not None:
            if not _is_list(value) or not all(isinstance(factor, int | float) for factor in value):
                raise refuse("give a list of numbers")
            return tuple(value)
        case "positive" | "negative":
            return _from_json(value, column, depth + 1)
        case "must" | "should" | "must_not":
            if not _is_list(value):
                raise refuse("give a list of queries")
            return tuple(_from_json(part, column, depth + 1) for part in value)
    return value


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


# The node of each kind, the keys that it needs, and others that it takes.
_KINDS: Final[
    Mapping[str, tuple[Callable[..., TextExpression], tuple[str, ...], tuple[str, ...]]]
] = {
    "match": (
        Match,
        ("query",),
        (
            "column",
            "operator",
            "boost",
            "fuzziness",
            "max_expansions",
            "prefix_length",
            "minimum_should_match",
        ),
    ),
    "phrase": (Phrase, ("query",), ("column", "slop")),
    "multi_match": (MultiMatch, ("query", "columns"), ("boosts", "operator")),
    "combined_fields": (CombinedFields, ("query", "columns"), ("boosts", "operator")),
    "boost": (Boost, ("positive", "negative"), ("negative_boost",)),
    "boolean": (Boolean, (), ("must", "should", "must_not", "minimum_should_match")),
}
# Keys that the parameters of a node have other names than.
_PARAMETERS: Final[Mapping[tuple[object, str], str]] = {
    **{(node, "query"): "text" for node in (Match, Phrase, MultiMatch, CombinedFields)},
    (CombinedFields, "boosts"): "weights",
}
