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
            f'search for this text, put it into {{"match": {{"query": ...}}}}.'
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
    parts = _Body(kind, body, column, depth)
    expression = _KINDS[kind](parts)
    parts.done()
    return expression


class _Body:
    """The keys of one part; each may be taken once, and `done` refuses the rest."""

    def __init__(
        self, kind: str, keys: Mapping[str, object], column: str | None, depth: int
    ) -> None:
        self._kind = kind
        self._unread = dict(keys)
        self._asked: list[str] = []
        self._column = column
        self._depth = depth

    def take(self, key: str, default: object = ...) -> Any:
        """The value of a key; without a default it must be there."""
        self._asked.append(key)
        if key not in self._unread and default is ...:
            raise InvalidCallError(f"A {self._kind} query needs {key!r}; it has {self._names()}.")
        return self._unread.pop(key, default)

    def done(self) -> None:
        """Raises for keys that nobody asked for."""
        if self._unread:
            raise InvalidCallError(
                f"{next(iter(self._unread))!r} is not a key of a {self._kind} query; it takes "
                f"{', '.join(self._asked)}."
            )

    def text(self) -> str:
        """The required text."""
        value = self.take("query")
        if not isinstance(value, str):
            raise InvalidCallError(f"query of a {self._kind} query is {value!r}; give a string.")
        return value

    def column(self) -> str:
        """The column it names, else the column of the call."""
        value = self.take("column", None)
        value = self._column if value is None else value
        if not isinstance(value, str):
            raise InvalidCallError(
                f"The column of a {self._kind} query is {value!r}; name a text column."
            )
        return value

    def operator(self) -> Operator:
        """AND or OR, in any case; OR if it is not there."""
        value = self.take("operator", "OR")
        if isinstance(value, Operator):
            return value
        if not isinstance(value, str) or value.upper() not in Operator.__members__:
            raise InvalidCallError(
                f"operator of a {self._kind} query is {value!r}; give 'AND' or 'OR'."
            )
        return Operator[value.upper()]

    def names(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self.take(key)
        if not _is_list(value) or not all(isinstance(name, str) for name in value):
            raise InvalidCallError(
                f"{key} of a {self._kind} query is {value!r}; give a list of names."
            )
        return tuple(value)

    def boosts(self) -> tuple[float, ...] | None:
        """A list of numbers, which the tree checks; None if it is not there."""
        value = self.take("boosts", None)
        if value is None:
            return None
        if not _is_list(value) or not all(isinstance(factor, int | float) for factor in value):
            raise InvalidCallError(
                f"boosts of a {self._kind} query are {value!r}; give a list of numbers."
            )
        return tuple(value)

    def part(self, key: str) -> TextExpression:
        """A required query."""
        return _from_json(self.take(key), self._column, self._depth + 1)

    def parts(self, key: str) -> tuple[TextExpression, ...]:
        """A list of queries; empty if it is not there."""
        value = self.take(key, ())
        if not _is_list(value):
            raise InvalidCallError(
                f"{key} of a {self._kind} query is {value!r}; give a list of queries."
            )
        return tuple(_from_json(form, self._column, self._depth + 1) for form in value)

    def _names(self) -> str:
        return ", ".join(map(repr, self._unread)) or "none"


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _match(body: _Body) -> Match:
    fuzziness = body.take("fuzziness", 0)
    return Match(
        body.text(),
        body.column(),
        body.operator(),
        body.take("boost", 1.0),
        None if fuzziness == "auto" else fuzziness,
        body.take("max_expansions", 50),
        body.take("prefix_length", 0),
        body.take("minimum_should_match", None),
    )


def _phrase(body: _Body) -> Phrase:
    return Phrase(body.text(), body.column(), body.take("slop", 0))


def _multi_match(body: _Body) -> MultiMatch:
    return MultiMatch(body.text(), body.names("columns"), body.boosts(), body.operator())


def _combined_fields(body: _Body) -> CombinedFields:
    return CombinedFields(body.text(), body.names("columns"), body.boosts(), body.operator())


def _boost(body: _Body) -> Boost:
    return Boost(body.part("positive"), body.part("negative"), body.take("negative_boost", 0.5))


def _boolean(body: _Body) -> Boolean:
    return Boolean(
        body.parts("must"),
        body.parts("should"),
        body.parts("must_not"),
        body.take("minimum_should_match", None),
    )


_KINDS: Final[Mapping[str, Callable[[_Body], TextExpression]]] = {
    "match": _match,
    "phrase": _phrase,
    "multi_match": _multi_match,
    "combined_fields": _combined_fields,
    "boost": _boost,
    "boolean": _boolean,
}
